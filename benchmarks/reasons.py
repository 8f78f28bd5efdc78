"""Why a row is slower than torch: "theme: name" -> a sentence for the last column of its table."""

REASONS: dict[str, str] = {}
