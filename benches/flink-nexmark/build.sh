#!/usr/bin/env bash
# Compiles the connector against the jars of a Flink: FLINK_HOME=<folder of Flink 2.3> ./build.sh, which writes
# target/flink-nexmark.jar. Java 11 or later. With INSTALL=1 it is also put into Flink's lib, to be there at its next start.
set -euo pipefail
cd "$(dirname "$0")"
: "${FLINK_HOME:?the folder of a Flink 2.3, which has lib/flink-dist-*.jar}"
classpath="$(printf '%s:' "$FLINK_HOME"/lib/flink-dist-*.jar "$FLINK_HOME"/lib/flink-table-api-java-uber-*.jar)"
rm -rf target
mkdir -p target/classes
javac --release 11 -Xlint:all,-classfile,-processing -proc:none -d target/classes -cp "$classpath" $(find src -name '*.java')
cp -r src/main/resources/. target/classes/
# The program jar belongs to the JDK, as javac does.
jar --create --file target/flink-nexmark.jar -C target/classes .
[ -z "${INSTALL:-}" ] || cp target/flink-nexmark.jar "$FLINK_HOME/lib/"
echo "$PWD/target/flink-nexmark.jar"
