"""What a run is turned into: text, JSON, a page, a badge, a comparison."""
