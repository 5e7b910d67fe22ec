#!/bin/sh
# Runs commands at the same time and prints the output of each, in order, when it has ended. Fails if one fails.
#
#   tools/together.sh 'Title: command' ...
set -u

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
count=0
for job in "$@"; do
    count=$((count + 1))
    printf '\n==> %s: begins; its output follows when it has ended\n' "${job%%: *}"
    { sh -c "${job#*: }" >"$logs/$count" 2>&1; echo $? >"$logs/$count.status"; } &
done
wait

failed=0
count=0
for job in "$@"; do
    count=$((count + 1))
    printf '\n==> %s\n' "${job%%: *}"
    cat "$logs/$count"
    [ "$(cat "$logs/$count.status")" = 0 ] || failed=1
done
exit $failed
