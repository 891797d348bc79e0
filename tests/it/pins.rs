//! What the suites of real programs install is named exactly, and from no certain registry.

use serde_json::Value;

/// Holds it to that; gives the manifest and the lock of what comes from npm.
pub(crate) fn hold(name: &str, pins: &str) -> Option<(Value, Value)> {
    if !pins.starts_with('{') {
        assert!(pins.lines().all(|line| line.contains("==")), "{name}: {pins}");
        return None;
    }
    let files = serde_json::Deserializer::from_str(pins).into_iter();
    let files: Vec<Value> = files.map(|file| file.expect("JSON")).collect();
    let [manifest, lock] = &files[..] else { unreachable!("{name}: {} files", files.len()) };
    assert_eq!(lock["packages"][""]["dependencies"], manifest["dependencies"], "{name}");
    for (place, package) in lock["packages"].as_object().expect("packages") {
        assert!(place.is_empty() || package["version"].is_string(), "{name}: {place}");
        assert!(place.is_empty() || package["integrity"].is_string(), "{name}: {place}");
        assert!(package["resolved"].is_null(), "{name}: {place} names a registry");
    }
    Some((manifest.clone(), lock.clone()))
}
