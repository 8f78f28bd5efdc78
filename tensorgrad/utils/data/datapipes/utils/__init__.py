"""Helpers of datapipes."""
