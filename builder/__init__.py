"""`specdec build`: download, check, convert, distill and render models into a repository."""
