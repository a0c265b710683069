#!/bin/sh
# A rig for the outcomes: it does what the name of the operation says, with the values in its arguments. gevals 0.0.1 on standard input and output.
#   give {…}                        succeeds; the outputs are the arguments
#   next {OUTPUT: "A B C"}          succeeds; the output is A in the first call, B in the second, and so on
#   fail {error: TEXT}              says that what it tests is at fault
#   refuse {message: TEXT}          says that it cannot do its part
#   recover {by: fail|refuse}       fails or refuses the first time, and succeeds after that
#   wait {seconds: N}               succeeds after a time
#   late                            never answers
#   leave                           ends
calls=0
recovered=0
while IFS= read -r line; do
  id=$(printf '%s\n' "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/p')
  args=$(printf '%s\n' "$line" | sed -n 's/.*"args":\({[^}]*}\).*/\1/p')
  member() { printf '%s\n' "$args" | sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }
  answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
  refuse() { printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"%s"}}\n' "$id" "$1"; }
  case $line in
  *'"method":"initialize"'*)
    operations='"give":{"params":{}},"next":{"params":{}},"fail":{"params":{}},"refuse":{"params":{}},"recover":{"params":{}},"wait":{"params":{}},"late":{"params":{}},"leave":{"params":{}},"count":{"params":{"type":"object","properties":{"n":{"type":"integer"}}}}'
    answer "{\"name\":\"outcomes\",\"version\":\"1.2.3\",\"protocolVersion\":\"0.0.1\",\"operations\":{$operations}}" ;;
  *'"operation":"give"'*) answer "{\"success\":true,\"outputs\":$args}" ;;
  *'"operation":"next"'*)
    calls=$((calls + 1))
    name=$(printf '%s\n' "$args" | sed -n 's/{"\([^"]*\)":.*/\1/p')
    value=$(member "$name" | cut -d ' ' -f "$calls")
    answer "{\"success\":true,\"outputs\":{\"$name\":\"$value\"}}" ;;
  *'"operation":"fail"'*) answer "{\"success\":false,\"error\":\"$(member error)\"}" ;;
  *'"operation":"refuse"'*) refuse "$(member message)" ;;
  *'"operation":"recover"'*)
    if [ "$recovered" = 1 ]; then
      answer '{"success":true,"outputs":{}}'
    elif [ "$(member by)" = fail ]; then
      answer '{"success":false,"error":"not yet"}'
    else
      refuse 'busy'
    fi
    recovered=1 ;;
  *'"operation":"wait"'*)
    sleep "$(member seconds)"
    answer '{"success":true,"outputs":{}}' ;;
  *'"operation":"late"'*) ;;
  *'"operation":"leave"'*) exit 1 ;;
  *) [ -z "$id" ] || answer '{}' ;;
  esac
done
