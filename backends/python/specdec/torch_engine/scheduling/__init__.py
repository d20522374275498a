"""The scheduling of tasks: admission, selection of rows, passes, verification."""
