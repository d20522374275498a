"""Helpers of the scenarios: requests, watched servers, faults and the lines of the table."""
