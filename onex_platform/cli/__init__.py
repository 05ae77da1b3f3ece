"""The `onex` command: one file per noun, loaded only when it is asked for."""
