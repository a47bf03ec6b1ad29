"""The ten verification tests, live over HTTP: one file a test. `--overload-target` names another target."""
