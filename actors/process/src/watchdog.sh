# Outlives its host by a moment. $1: the first twelve digits of the tags of all that the host started.
# Stdin is the host's lifeline: a line is a farewell, an end without one is the host's death. The signals of a terminal are
# ignored from the start.
command -v grep >/dev/null || exit 127
# In the table of another PID namespace the numbers mean others.
read -r self _ < /proc/self/stat && [ "$self" = $$ ] || exit 127
! grep -qE "^NSpid:.*[0-9].*[[:space:]][0-9]" /proc/self/status || exit 127
if read -r farewell; then exit 0; fi

# Sets $found to those that bear a tag of the host and are not dead. A process whose first thread has ended is a zombie to
# look at, and goes on in its others.
look() {
  bearers=$(
    grep -lE "^Max (file locks|resident set) +$1[0-9]{7} " /proc/[0-9]*/limits 2>/dev/null
    # The first look is quick and finds too many: the variable is a whole entry.
    for file in $(grep -lE "SUBAGENTS_SCOPE=([0-9]+/)*$1[0-9]{7}" /proc/[0-9]*/environ 2>/dev/null); do
      tr '\0' '\n' 2>/dev/null < "$file" |
        grep -qE "^SUBAGENTS_SCOPE=([0-9]{19}/)*$1[0-9]{7}(/[0-9]{19})*$" && echo "$file"
    done
  )
  found=
  for file in $bearers; do
    id=${file#/proc/}
    id=${id%%/*}
    [ "$id" = $$ ] && continue
    case " $found " in *" $id "*) continue ;; esac
    state= threads=
    while read -r key value _; do
      case $key in
        State:) state=$value ;;
        Threads:) threads=$value; break ;;
      esac
    done 2>/dev/null < "/proc/$id/status"
    case $state in
      "") ;;
      Z | X) [ "${threads:-1}" -gt 1 ] && found="$found $id" ;;
      *) found="$found $id" ;;
    esac
  done
}

# Stop them all first, so that nobody forks while the others are killed.
looks=0 before=none
while [ $looks -lt 20 ]; do
  look "$1"
  [ -z "$found" ] && break
  [ "$found" = "$before" ] && break
  kill -STOP $found 2>/dev/null
  before=$found looks=$((looks + 1))
done

looks=0 quiet=0
while [ $looks -lt 200 ]; do
  look "$1"
  if [ -z "$found" ]; then
    quiet=$((quiet + 1))
    [ $quiet -ge 2 ] && break
  else
    quiet=0
    kill -KILL $found 2>/dev/null
  fi
  looks=$((looks + 1))
done
