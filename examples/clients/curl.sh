#!/usr/bin/env bash
# The same streams with nothing but curl. Start the server first:
#
#   tidemill serve examples/clients/clients.sql --state-dir state
#   examples/clients/curl.sh
#
# SERVER names another one. TOKEN is sent if it is set; for https, CURL_CA_BUNDLE names the certificates to trust.
set -euo pipefail
server="${SERVER:-http://127.0.0.1:7733}"

ask() {
  local path="$1"
  shift
  curl --silent --show-error --fail-with-body ${TOKEN:+--header "Authorization: Bearer $TOKEN"} "$@" "$server$path"
  echo
}

echo "# the job"
ask /v1/jobs/clients

echo "# three orders as JSON lines; the answer comes when a checkpoint has made them safe"
ask '/v1/streams/orders?publisher=curl&offset=0&wait=ack' --header 'Content-Type: application/x-ndjson' --data-binary @- <<'ROWS'
{"id": 1, "customer": "anna", "amount": 120.5}
{"id": 2, "customer": "ben", "amount": 7}
{"id": 3, "customer": "anna", "amount": 30}
ROWS

echo "# two of them again, and one more, as CSV: what the server has is cut off"
ask '/v1/streams/orders?publisher=curl&offset=1&wait=ack' --header 'Content-Type: text/csv' --data-binary @- <<'ROWS'
id,customer,amount
2,ben,7
3,anna,30
4,cleo,250
ROWS

echo "# what the view holds"
ask '/v1/streams/per_customer/rows?limit=10'

echo "# large orders from the first one on, as server-sent events, for two seconds"
# 28 is curl's code for "time is over".
ask "/v1/streams/large_orders/events?from=earliest&filter=customer%20%3C%3E%20'ben'" --no-buffer --max-time 2 || [ $? = 28 ]
