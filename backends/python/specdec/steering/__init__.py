"""The controller: decides by measurement whether and how to speculate."""
