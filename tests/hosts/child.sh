# What the hosts delegate to: the first word of the prompt says what it does. Its files are beside it.
here=${0%/*}
read -r word rest
case $word in
  answer) printf '%s\n' "$rest" ;;
  # Waits until five of its kind are there; who waits alone for long spares the others that.
  together)
    : >"$here/at-$rest"
    end=$(($(date +%s) + 8))
    while :; do
      if [ -e "$here/alone" ] || [ "$(date +%s)" -ge "$end" ]; then
        : >"$here/alone"
        printf 'number %s, alone\n' "$rest"
        exit 0
      fi
      set -- "$here"/at-*
      if [ $# -ge 5 ]; then
        printf 'number %s, side by side\n' "$rest"
        exit 0
      fi
      sleep 0.05
    done
    ;;
  # Ends on no signal that can be ignored, nor does what it has started, in a session of its own.
  hangs)
    trap '' HUP INT TERM
    setsid sh -c ': >"$1/held"; exec tail -f "$1/held"' sh "$here" </dev/null >/dev/null 2>&1 &
    until [ -e "$here/held" ]; do sleep 0.05; done
    : >"$here/hangs"
    tail -f "$here/hangs"
    ;;
  fails)
    echo 'no luck today' >&2
    exit 3
    ;;
  *)
    printf 'what is `%s`?\n' "$word" >&2
    exit 9
    ;;
esac
