#!/bin/sh
# words.sh [FOLDER...] finds sentences without a named subject in the comments of Go
# files: a question word or a pronoun where a noun should be.
#
#   what, who, whoever             "what comes is read", "who leaves is told"
#   that of, those of              "that of the group"
#   those that, those who, …       "those that wait"
#   Which, beginning a sentence    "Which is found later."
#
# A question after its verb is fine: "says what is wrong", "decides who is next". So is
# a noun before it: "a user, who may publish".
# It prints file:line and the line of each, and fails if there are more than LIMIT in
# the tree. LIMIT only goes down.
LIMIT=0

cd "$(dirname "$0")/.." || exit 1
found=$(git ls-files -- "${@:-.}" | grep '\.go$' | xargs awk '
	BEGIN { verbs = "^(say|said|tell|told|show|showed|ask|asked|know|see|seen|decide|explain|learn|matter|report)s?$" }
	FNR == 1 { before = "" }
	{
		text = $0
		gsub(/"([^"\\]|\\.)*"|`[^`]*`/, "", text) # strings, and the URLs in them
		if (!match(text, /(^|[ \t])\/\/ /)) { before = ""; next }
		n = split(substr(text, RSTART + RLENGTH), words, /[ \t]+/)
		hit = 0
		for (i = 1; i <= n; i++) {
			word = words[i]
			sub(/^[(]/, "", word)
			if (before ~ /^$|[.:]$/ && word == "Which") hit = 1
			word = tolower(word)
			if (word ~ /^(what|who|whoever)[,;]?$/ && before !~ verbs && !(word == "who" && before ~ /,$/)) hit = 1
			if (word == "of" && before ~ /^(that|those)$/) hit = 1
			if (word ~ /^(that|who|which|whose|with|in|on|from)$/ && before == "those") hit = 1
			before = word
		}
		if (hit) print FILENAME ":" FNR ":" $0
	}
')
count=$(printf '%s' "$found" | grep -c '')
printf '%s\n' "$found"
echo "$count sentences without a subject in comments; $LIMIT are allowed (scripts/words.sh lists them)" >&2
test "$count" -le "$LIMIT"
