#!/bin/sh
# Runs parts of the test suite, one make target after the other, and prints how long each part took.
#
#   tools/test.sh PART...      called by `make test` and `make test-long`
#
# The first part that fails ends the run. A part that cannot run some of its tests appends a line to the file
# $TEST_NOTES; the summary repeats these lines, so that no test is skipped in silence. A line that starts with
# "MISSING" makes the run fail.
set -u

cd "$(dirname "$0")/.."
notes=$(mktemp)
table=$(mktemp)
trap 'rm -f "$notes" "$table"' EXIT
export TEST_NOTES="$notes"

result=passed
begin=$(date +%s)
for part in "$@"; do
    start=$(date +%s)
    if ! "${MAKE:-make}" --no-print-directory "$part"; then
        result="failed in '$part'"
    fi
    printf '  %-14s %5d s\n' "$part" $(($(date +%s) - start)) >>"$table"
    [ "$result" = passed ] || break
done

printf '\n==> Summary\n'
cat "$table"
printf '  %-14s %5d s\n' total $(($(date +%s) - begin))
sed 's/^/  /' "$notes"
if grep -q '^MISSING' "$notes"; then
    [ "$result" = passed ] && result="failed: some tests could not run"
fi
echo "  result: $result"
[ "$result" = passed ]
