"""Step times held against measurements: published runs and a user's own, rehearsed as they were measured."""
