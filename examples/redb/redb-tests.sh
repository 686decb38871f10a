#!/bin/sh
# Runs redb's own tests on unherd's cache: a copy of redb whose FileBackend moves its bytes through
# one cache of the process. It keeps its own locks. Arguments go to `cargo test`.
#
#     examples/redb/redb-tests.sh [--no-fail-fast]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
copy=$here/target/redb-tests
manifest=$(cargo metadata --manifest-path "$here/Cargo.toml" --format-version 1 |
    tr '"' '\n' | grep '/redb-[0-9.]*/Cargo.toml$' | head -n 1)
rm -rf "$copy/src" "$copy/tests"
mkdir -p "$copy"
cp -r "$(dirname "$manifest")/." "$copy"
cp "$here/redb-tests.rs.in" "$copy/src/tree_store/page_store/file_backend/cached.rs"
cd "$copy"

# A workspace of its own, with unherd.
rm -rf rust-toolchain Cargo.toml.orig Cargo.lock examples
cat >> Cargo.toml << END
[workspace]

[dependencies.unherd]
path = "$here/../../crates/unherd"
END

# Each text must be there exactly once.
replace() {
    if [ "$(grep -cF -- "$1" "$backend")" != 1 ]; then
        echo "redb-tests: '$1' is not once in $backend: this is for another version" >&2
        exit 1
    fi
    escaped=$(printf '%s' "$1" | sed 's/[]\/$*.^[]/\\&/g')
    sed -i "s/$escaped/$2/" "$backend"
}
backend=src/tree_store/page_store/file_backend/optimized.rs
cached=super::cached::Cached
sed -i '1i mod cached;' src/tree_store/page_store/file_backend/mod.rs
replace '    file: File,' "    cached: $cached,\n    file: File,"
replace '            file,' "            cached: $cached::new(\&file),\n            file,"
replace 'Ok(self.file.metadata()?.len())' 'self.cached.len()'
replace 'self.file.read_exact_at(out, offset)?' 'self.cached.read(offset, out)?'
replace '        self.release_all_locks()' \
    '        let closed = self.cached.close();\n        self.release_all_locks().and(closed)'
replace 'self.file.set_len(len)' 'self.cached.set_len(len)'
replace 'self.file.sync_data()' 'self.cached.sync()'
replace 'self.file.write_all_at(data, offset)' 'self.cached.write(offset, data)'

cargo test --lib --tests "$@"
