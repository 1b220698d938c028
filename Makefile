# The front door. Everything here is a line or two; the work is done by
# scripts/setup (what must be installed), boot/ (images and machines) and
# tests/ (the suite). Variables go through the environment, so a value may hold
# spaces and quotes; a dollar sign is written twice, as make has it.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run new test test-quick test-full image usb gdb build setup clean tool browser bochs newer-qemu
.PHONY: doc bench bench-go bench-check bench-docs bench-all systems trace compare fuzz chaos soak explore
.PHONY: handout grade grade-all grade-check contest book

# Of `make run` and `make gdb`: CPUs, memory, UEFI=1, ACCEL=tcg|kvm, GUI=1,
# DISK=<image>|none, KEEP=1 (what the guest writes to it stays), PROGRAM=<name>,
# APP=<crate>, ARGS="kernel words -- words for the program", FAST=1 (built in a few
# seconds after an edit, slower to run).
SMP ?= 8
MEM ?= 1G
UEFI ?=
ACCEL ?=
GUI ?=
DISK ?=
KEEP ?=
PROGRAM ?=
APP ?=
ARGS ?=
FAST ?=
DEV ?=
# Of `make trace`: OUT=<name> for the files, REAL=1 (by the host's clock, not in virtual
# time); of `make compare`: A=<name> B=<name>.
OUT ?=
REAL ?=
A ?=
B ?=
# Of `make bench`: BENCH="names of workloads", SAMPLES=5 (0: instructions only),
# CPUS="1 2 4 8".
BENCH ?=
SAMPLES ?=
CPUS ?=
# Of `make fuzz`: MINUTES=10, TARGET=madt, SEED=n; of `make soak`: MINUTES=30.
MINUTES ?=
TARGET ?=
SEED ?=
# Of the labs: LAB=4; OUT= of `make handout`; HINT=2, FULL=1, TEACHER=dir, SUBMISSION=dir of
# `make grade`; SUBMISSIONS=dir of `make grade-all` and `make contest`.
LAB ?=
HINT ?=
FULL ?=
TEACHER ?=
SUBMISSION ?=
SUBMISSIONS ?=
# Of `make chaos` and `make explore`: how many seeds (200, 1000), from which on; of
# `make explore` also LIMIT=10, the seconds of virtual time that make a hang.
SEEDS ?=
FIRST ?= 1
LIMIT ?=
# Of `make test APP=<crate>`: TEST=<part of a name>, LIMIT=60, the seconds of a test.
TEST ?=
export SMP MEM UEFI ACCEL GUI DISK KEEP PROGRAM APP ARGS FAST DEV BENCH SAMPLES CPUS
export MINUTES TARGET SEED SEEDS FIRST LIMIT TEST OUT REAL A B
export LAB HINT FULL TEACHER SUBMISSION SUBMISSIONS

# One place for what is built, and rustup's tools even in a shell that was
# started before rustup came.
unexport CARGO_TARGET_DIR
export PATH := $(PATH):$(HOME)/.cargo/bin
# The suite counts the set-up as its first stage.
export RUNNEXT_STARTED := $(shell date +%s)

BOOT = target/debug/boot
MACHINE = --smp "$$SMP" --mem "$$MEM" --uefi "$$UEFI" --accel "$$ACCEL" --gui "$$GUI" \
	--disk "$$DISK" --keep "$$KEEP" --program "$$PROGRAM" --app "$$APP" --fast "$$FAST" \
	--cmdline "$$ARGS"

help: ## this list
	@echo 'make <target> [SMP=8 MEM=1G UEFI=1 ACCEL=tcg|kvm GUI=1 DISK=image PROGRAM=name APP=path ARGS="…" FAST=1 BENCH=name SEEDS=n LIMIT=10 LAB=4]'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: tool ## build and boot in QEMU, serial console here
	@$(BOOT) run $(MACHINE)

new: tool ## APP=path: write a crate of your own there, for an editor and the targets with APP=
	@$(BOOT) new --app "$$APP"

ifeq ($(APP),)
test: tool browser bochs newer-qemu ## everything that is checked; APP=path [TEST=word]: the tests of that crate
	@cargo suite
else
test: tool
	@$(BOOT) test $(MACHINE) --test "$$TEST" --limit "$$LIMIT"
endif

test-quick: tool browser ## for the inner loop: 90 seconds once built
	@cargo suite --quick

test-full: tool browser bochs newer-qemu ## all seeds, sizes and machine shapes, however long
	@cargo suite --full

chaos: tool ## SEEDS=200 FIRST=1: boot once per seed with random preemption and delays
	@cargo run --quiet -p tests --bin chaos -- --seeds "$$SEEDS" --first "$$FIRST"

# Four CPUs unless SMP= was given: more take turns that are longer to go through.
explore: tool newer-qemu ## PROGRAM=tickets SEEDS=1000: look for an interleaving that fails, shrink and show it
	@cargo run --quiet -p tests --bin explore -- --program "$$PROGRAM" --app "$$APP" --seeds "$$SEEDS" \
		--first "$$FIRST" --smp "$(if $(filter file,$(origin SMP)),4,$(SMP))" --mem "$$MEM" \
		--limit "$$LIMIT" --cmdline "$$ARGS"

soak: tool ## MINUTES=30: all features at once on 8 and 16 CPUs, and a ledger of leaks
	@cargo run --quiet -p tests --bin soak -- --minutes "$$MINUTES"

trace: tool newer-qemu ## what the scheduler did, as target/trace.html, .svg and .json (PROGRAM=skynet)
	@cargo run --quiet -p trace -- run --out "$$OUT" --real "$$REAL" $(MACHINE)

compare: ## A=before B=after: two traces (make trace OUT=before) on one page
	@cargo run --quiet -p trace -- compare --a "$$A" --b "$$B" --out "$$OUT"

fuzz: setup ## broken bytes for every parser (MINUTES=10 TARGET=madt SEED=n)
	@CARGO_PROFILE_DEV_OPT_LEVEL=1 cargo run --quiet -p fuzz --target-dir target/fuzz -- \
		--minutes "$$MINUTES" --target "$$TARGET" --seed "$$SEED"

bench: tool ## what operations cost, as target/bench.json and .svg (BENCH=yield: one)
	@cargo run --quiet -p bench -- run --only "$$BENCH" --samples "$$SAMPLES" --cpus "$$CPUS"

bench-go: tool ## the same beside Go on Linux, in the same machine
	@cargo run --quiet -p bench -- go --only "$$BENCH" --samples "$$SAMPLES" --cpus "$$CPUS"

bench-check: tool ## fails when an operation is over its budget (the large ones take 6 GiB)
	@cargo run --quiet -p bench -- check --only "$$BENCH"

bench-docs: tool ## the tables of docs/benchmarks.md, from what was measured
	@cargo run --quiet -p bench -- docs

bench-all: bench-go bench-docs ## bench-go, then bench-docs: an hour on a quiet machine

systems: tool newer-qemu ## the six scheduling systems side by side, as docs/systems.md
	@cargo run --quiet -p bench -- systems

handout: setup ## LAB=4 OUT=dir: a lab for students (labs/README.md)
	@cargo run --quiet -p labs -- handout --lab "$$LAB" --out "$$OUT" --teacher "$$TEACHER"

grade: tool newer-qemu ## LAB=4 [HINT=2 FULL=1 TEACHER=dir SUBMISSION=dir]: points, and how it failed
	@cargo run --quiet -p labs -- grade --lab "$$LAB" --hint "$$HINT" --full "$$FULL" \
		--teacher "$$TEACHER" --submission "$$SUBMISSION"

grade-all: tool newer-qemu ## LAB=4 SUBMISSIONS=dir: each folder in it, as CSV and JSON
	@cargo run --quiet -p labs -- grade-all --lab "$$LAB" --full "$$FULL" \
		--teacher "$$TEACHER" --submissions "$$SUBMISSIONS"

grade-check: tool newer-qemu ## the labs themselves: stub 0, reference 100, each wrong body its test
	@cargo run --quiet -p labs -- check --lab "$$LAB"

contest: setup ## SUBMISSIONS=dir [TEACHER=dir]: ranks the systems of lab 8 in that folder
	@cargo run --quiet -p labs -- contest --lab "$$LAB" --submissions "$$SUBMISSIONS" --teacher "$$TEACHER"

image: tool ## target/runnext-bios.img and target/runnext-uefi.img
	@$(BOOT) image --app "$$APP"

usb: tool ## DEV=/dev/sdX: write an image to a stick (UEFI=1: the UEFI one)
	@$(BOOT) usb --dev "$$DEV" --uefi "$$UEFI" --app "$$APP"

gdb: tool ## boot halted, gdb attached, symbols loaded
	@$(BOOT) gdb $(MACHINE)

book: setup ## the book as pages, target/book/index.html (it can be read in book/src as well)
	@scripts/mdbook

doc: setup ## the API documentation, as target/doc/runnext/index.html
	@cargo doc --quiet --no-deps -p runnext -p sched
	@echo 'target/doc/runnext/index.html'

build: setup ## the kernel with its programs, no image
	@cargo kernel -p programs

setup: ## install what is missing: toolchain, linker, QEMU, OVMF
	@scripts/setup

# What the tests of the trace's page are read with.
browser: setup
	@scripts/setup browser

# What virtual time is best run with (boot/src/host.rs): nothing to do if it is there.
newer-qemu: setup
	@scripts/newer-qemu || echo 'going on with the QEMU that is installed'

# The second emulator that the image is tried in.
bochs: setup
	@scripts/setup bochs

clean: ## remove all that was built
	@cargo clean

# The tool that everything else goes through. It builds the loader of a firmware when
# the first image for it is made: minutes once, and nothing ever after.
tool: setup
	@cargo build --quiet -p boot
