"""From model files to a model repository: download, check, convert, distill, render."""
