# Starts PgBouncer with what the binding says, and again whenever that changes. A password goes from file to file and
# is in nobody's arguments: `printf` is the shell's own.
set -eu
umask 077
own=$$
# What a line of its settings may hold between quotes.
entry() { sed "s/'/''/g" "$BINDING/$1"; }

settings() {
    if [ -s "$BINDING/ca.crt" ]; then
        tls="server_tls_sslmode = verify-full
server_tls_ca_file = $BINDING/ca.crt"
    else
        tls="server_tls_sslmode = require"
    fi
    printf "[databases]\n* = host='%s' port='%s' dbname='%s' user='%s' password='%s'\n[pgbouncer]\n%s\n%s\n" \
        "$(entry host)" "$(entry port)" "$(entry database)" "$(entry username)" \
        "$(entry password)" "$tls" "$SETTINGS" > pgbouncer.new
    mv pgbouncer.new pgbouncer.ini
}

# Who connects from this pod says the password that the pod has started with.
printf '"%s" "%s"\n' "$(sed 's/"/""/g' "$BINDING/username")" "$(sed 's/"/""/g' "$BINDING/password")" > users.txt
known=$(readlink "$BINDING/..data" || :)
settings
while sleep 2; do
    now=$(readlink "$BINDING/..data" || :)
    if [ "$now" != "$known" ]; then
        known=$now
        settings && kill -HUP "$own"
    fi
done &
exec pgbouncer pgbouncer.ini
