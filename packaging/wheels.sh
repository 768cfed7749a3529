# Sourced by what fetches wheels from PyPI without installing a Python package: download, then unpack some of their folders.
# shellcheck shell=sh
# The caller is $name in what it says. $machine, x86_64 or aarch64, is the machine type of the wheels.

say() { echo "$name: $*"; }
fail() { echo "$name: $*" >&2; exit 1; }

# fetch_wheels DEST STAMP MIB WHAT FOLDERS WHEELS: DEST gets STAMP as its dslaunch-stamp, last; a DEST that has it is left as it
# is, and a run that fails leaves no DEST behind. MIB are needed on the disk meanwhile. FOLDERS has lines "IN_WHEEL/ IN_DEST/
# [BEGINNING ...]", with the beginnings of the names of the files wanted, by default all. WHEELS has pip's lines with hashes.
fetch_wheels() {
  dest=$1 stamp=$2 mib=$3 what=$4 folders=$5 wheels=$6
  if [ "$(cat "$dest/dslaunch-stamp" 2>/dev/null || true)" = "$stamp" ]; then
    say "$dest is complete ($stamp)"
    return 0
  fi
  if [ -e "$dest" ] && [ ! -e "$dest/dslaunch-stamp" ]; then
    fail "$dest exists and was not made by this script; remove it, or name another folder"
  fi
  case "$(uname -s)-$machine" in
    Linux-x86_64 | Linux-aarch64) ;;
    *) fail "there are no such wheels for $(uname -s) $machine; get LibTorch 2.11 yourself and configure with -DDSLAUNCH_LIBTORCH=FOLDER" ;;
  esac
  python3 -m pip --version >/dev/null 2>&1 ||
    fail "python3 with pip is needed for the download; on Debian: apt-get install python3-pip"

  mkdir -p "$(dirname "$dest")"
  work=$(mktemp -d "$dest.tmp.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  free_kib=$(df -Pk "$work" | awk 'NR == 2 { print $4 }')
  [ "$free_kib" -ge $((mib * 1024)) ] ||
    fail "$(dirname "$dest") has $((free_kib / 1024)) MiB free, but $mib MiB are needed; free some space, or name another folder"

  started=$(date +%s)
  say "downloading $what for $dest ..."
  echo "$wheels" > "$work/wheels.txt"
  # The platform is spelled out so that any Python 3 of any machine fetches the same files.
  platforms=
  for glibc in _2_28 _2_27 _2_25 _2_18 2014 2010 1; do platforms="$platforms --platform manylinux${glibc}_$machine"; done
  # shellcheck disable=SC2086 # words
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --implementation cp --python-version 3.11 --abi cp311 --abi none $platforms \
    --require-hashes --requirement "$work/wheels.txt" --dest "$work/wheels" ||
    fail "the download failed (pip's message is above); check the network and pip's index settings, then run this again"

  say "unpacking ..."
  echo "$folders" > "$work/folders.txt"
  python3 - "$work" <<'PYTHON' || fail "unpacking into $work failed (message above); is the disk full?"
import os, shutil, sys, zipfile

work = sys.argv[1]
tree = os.path.join(work, "tree")
wheels = os.path.join(work, "wheels")
with open(os.path.join(work, "folders.txt")) as text:
    folders = [line.split() for line in text if line.strip()]


def place_of(name):
    """Where in DEST a wheel's file belongs, or None."""
    for source, target, *beginnings in folders:
        if name.startswith(source):
            rest = name[len(source):]
            if not beginnings or rest.startswith(tuple(beginnings)):
                return os.path.join(target, rest)
    return None


for wheel in os.listdir(wheels):
    with zipfile.ZipFile(os.path.join(wheels, wheel)) as archive:
        for item in archive.infolist():
            place = place_of(item.filename)
            if place is None or item.is_dir():
                continue
            target = os.path.normpath(os.path.join(tree, place))
            if not target.startswith(tree + os.sep):
                sys.exit("the wheel %s has the unsafe name %s" % (wheel, item.filename))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with archive.open(item) as source, open(target, "wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
    os.unlink(os.path.join(wheels, wheel))
PYTHON
  echo "$stamp" > "$work/tree/dslaunch-stamp"
  rm -rf "$dest"
  mv -T "$work/tree" "$dest"
  say "done in $(($(date +%s) - started)) s: $dest ($(du -sh "$dest" | cut -f1))"
}
