"""gdb's commands for Gs, Ms and Ps. `make gdb` loads this file.

    info gs            every live G: number, state, CPU, name, where it was started, its wait
    info ms            every M: what it does, and the G of its call
    info ps            every P: its queue, the G that runs there, the CPU's M
    bt g 7             the calls that G 7 is in, on a CPU or off it
    break-main [name]  stops where the main function of a program begins

The machine is stopped while gdb asks, so no lock is taken and no record changes meanwhile. Records
are read by the types in the debug information: nothing here knows an offset. A G that is not on a
CPU is read as the kernel's own backtrace does it (`saved` in arch/x86_64/irq/trap.rs): its saved
stack pointer, then the chain of frame pointers. No register of the machine is written, as a
debugger must that shows a task by switching to it.
"""

import gdb

STATES = {
    "Dead": "dead",
    "Runnable": "runnable",
    "Running": "running",
    "Parking": "parking",
    "Woken": "woken",
    "Parked": "waiting",
}
M_STATES = {"OnCpu": "on a CPU", "InCall": "in a call", "Spare": "spare", "Freed": "freed"}
MOST_FRAMES = 64
ADDRESS_BITS = 48
LONGEST_NAME = (1 << 15) - 1


def static(name):
    """A static by its path."""
    symbol = gdb.lookup_global_symbol(name) or gdb.lookup_static_symbol(name)
    if symbol is None:
        raise gdb.GdbError(f"no {name} in this image: start gdb by `make gdb`")
    return symbol.value()


def peel(value):
    """What is in an atomic, a cell or a link: the one field that has a size, again and again."""
    while value.type.strip_typedefs().code == gdb.TYPE_CODE_STRUCT:
        fields = [field for field in value.type.fields() if field.type.sizeof > 0]
        if len(fields) != 1:
            break
        value = value[fields[0]]
    return value


def word(value):
    """The same as a number without a sign."""
    return int(peel(value)) & (1 << 64) - 1


def word_at(address):
    return int.from_bytes(gdb.selected_inferior().read_memory(address, 8), "little")


def names_of(enum):
    """The names of an enum without fields, by number."""
    return {field.enumval: field.name.split("::")[-1] for field in gdb.lookup_type(enum).fields()}


def text(value):
    """A `&str`, also within a pointer type of its own."""
    value = peel(value)
    length = int(value["length"])
    if length == 0:
        return ""
    return bytes(gdb.selected_inferior().read_memory(int(value["data_ptr"]), length)).decode()


def sign_extended(number):
    """An address from its lower bits."""
    low = number & (1 << ADDRESS_BITS) - 1
    high = ((1 << 64) - 1) >> ADDRESS_BITS << ADDRESS_BITS
    return low | high if low >> ADDRESS_BITS - 1 else low


def records(first, older):
    """A list of records, each with a link to the one before it."""
    while int(first):
        record = first.dereference()
        yield record
        first = peel(older(record))


class G:
    """A G, as it is now."""

    def __init__(self, record):
        self.record, self.kernel = record, record["kernel"]
        self.address = int(record.address)
        self.id = word(record["id"])
        status = names_of("sched::g::Status")[word(record["word"]) & 0xFF]
        self.state = STATES[status]

    def name(self):
        """Address, length, and whether the G has set it, in one word: `Name` in run/record.rs."""
        packed = word(self.kernel["label"])
        at = sign_extended(packed)
        length = (packed - at) % (1 << 64) >> ADDRESS_BITS & LONGEST_NAME
        if packed == 0 or length == 0:
            return "-"
        return bytes(gdb.selected_inferior().read_memory(at, length)).decode()

    def site(self):
        site = peel(self.kernel["site"])
        if not int(site):
            return "-"
        site = site.dereference()
        # The pointer to the file's name has a type of its own in some versions of `core`.
        file = next(site[f] for f in site.type.fields() if "file" in f.name)
        return f"{text(file).split('/src/')[-1]}:{int(site['line'])}"

    def wait(self):
        """The reason is in the highest byte of the word: `Wait` in run/waiting.rs."""
        if self.state != "waiting":
            return ""
        packed = word(self.kernel["waiting"])
        extended = packed & (1 << 56) - 1
        if packed >> 55 & 1:
            extended |= 0xFF << 56
        number = (packed ^ extended) >> 56 & 0x3F
        reason = names_of("runnext::run::waiting::Reason").get(number, "?")
        if reason in ("Join", "ProgramEnd"):
            return f"{reason} {extended}"
        return f"{reason} {extended & 0xFFFFFFFF:x}" if extended else reason


def cpus():
    """How many CPUs are up."""
    return word(static("runnext::arch::x86_64::cpu::COUNT"))


def running():
    """The address of the G on each CPU; that of `NO_G` where none runs."""
    slots = [static("runnext::arch::x86_64::cpu::CPUS")[cpu]["slots"] for cpu in range(cpus())]
    return [word(of_cpu[0]) for of_cpu in slots]


def all_gs():
    """All live Gs, by number."""
    newest = peel(static("runnext::run::roster::ALL")["newest"])
    gs = [G(record) for record in records(newest, lambda g: g["kernel"]["older"])]
    return sorted((g for g in gs if g.state != "dead"), key=lambda g: g.id)


def all_ms():
    """All Ms that exist, by number. Their list is read as words: each link is an `Option`."""
    newest = static("runnext::run::m::MS")["value"]["value"]["newest"]
    pointer = gdb.lookup_type("runnext::run::m::M").pointer()
    at, ms = word_at(int(newest.address)), []
    while at:
        m = gdb.Value(at).cast(pointer).dereference()
        ms.append(m)
        at = word_at(int(m["older"].address))
    return sorted(ms, key=lambda m: int(m["id"]))


def unread(error):
    """Before the kernel has its page tables nothing of it can be read."""
    return gdb.GdbError(f"{error}; has the kernel begun? `break-main`, then `continue`")


class Info(gdb.Command):
    """One of the commands below: rows under a heading."""

    def __init__(self, name, heading, rows, about):
        self.__doc__ = about
        self.heading, self.rows = heading, rows
        super().__init__(name, gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        try:
            rows = [self.heading] + [[str(cell) for cell in row] for row in self.rows()]
        except gdb.MemoryError as error:
            raise unread(error) from None
        widths = [max(map(len, column)) for column in zip(*rows)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths))
            gdb.write(("  ".join(cells)).rstrip() + "\n")


def rows_of_gs():
    on = {address: cpu for cpu, address in enumerate(running())}
    for g in all_gs():
        yield g.id, g.state, on.get(g.address, "-"), g.name(), g.site(), g.wait()


def rows_of_ms():
    states = names_of("runnext::run::m::MState")
    for m in all_ms():
        state = M_STATES[states[word(m["state"])]]
        if state == "freed":
            continue
        g = peel(m["g"])
        in_call = state == "in a call" and int(g)
        yield int(m["id"]), state, G(g.dereference()).id if in_call else "-"


def rows_of_ps():
    gs = {g.address: g.id for g in all_gs()}
    sched = static("runnext::run::SCHED")
    limit, idle = word(sched["limit"]), sched["idle"]["__0"]["idle"]["words"]
    for cpu, address in enumerate(running()):
        slot = static("runnext::run::SLOTS")[cpu]
        other = peel(slot["other_ring"])
        ring = other.dereference() if int(other) else slot["runq"]["__0"]
        queued = (word(ring["tail"]) - word(ring["head"])) % (1 << 32)
        front = sum(word(ring[name]) != 0 for name in ("next", "displaced"))
        is_idle = word(idle[cpu // 64]) >> cpu % 64 & 1
        state = "idle" if is_idle else "retired" if cpu >= limit else "busy"
        m = peel(static("runnext::run::CPUS")[cpu]["m"])
        m = int(m.dereference()["id"]) if int(m) else "-"
        yield cpu, state, gs.get(address, "-"), m, front, queued, word(slot["steals"])


class Backtrace(gdb.Command):
    """bt g 7: the calls that G 7 is in. Anything else is gdb's own backtrace."""

    def __init__(self):
        super().__init__("bt", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        words = argument.split()
        if not words or words[0] != "g":
            return gdb.execute(f"backtrace {argument}", from_tty)
        try:
            self.of_g(int(words[1]))
        except (IndexError, ValueError):
            raise gdb.GdbError("which G? `bt g 7`; `info gs` shows their numbers") from None
        except gdb.MemoryError as error:
            raise gdb.GdbError(f"{error}; is its stack packed? (`pack=off`)") from None

    def of_g(self, number):
        g = next((g for g in all_gs() if g.id == number), None)
        if g is None:
            raise gdb.GdbError(f"no G {number}; `info gs` shows their numbers")
        on = running()
        if g.address in on:
            gdb.write(f"G {number} is on CPU {on.index(g.address)}\n")
            gdb.execute(f"thread apply {on.index(g.address) + 1} -q backtrace")
            return
        gdb.write(f"G {number} is off its CPU\n")
        for place, address in enumerate(calls(word(g.kernel["sp"]))):
            gdb.write(f"#{place:<2} {described(address if place == 0 else address - 1)}\n")


def calls(sp):
    """Where the context at `sp` goes on, and the return addresses above that."""
    pc, fp = word_at(sp), word_at(sp + 16)
    if pc in [int(symbol(name)) for name in ("runnext_trap_return", "runnext_trap_resume_call")]:
        frame = gdb.lookup_type("runnext::arch::x86_64::irq::trap::Frame").pointer()
        frame = gdb.Value(sp + 8).cast(frame).dereference()
        pc, fp = word(frame["rip"]), word(frame["rbp"])
    found = [pc]
    while fp and len(found) < MOST_FRAMES:
        above, pc = word_at(fp), word_at(fp + 8)
        if pc == 0:
            break
        found.append(pc)
        fp = above
    return found


def symbol(name):
    """The address of a symbol that has no type: of assembly, or of the linker script."""
    said = gdb.execute(f"info address {name}", to_string=True)
    return next(int(part.rstrip("."), 16) for part in said.split() if part.startswith("0x"))


def described(address):
    """The function at an address, its line, and the functions that it is inlined in."""
    block, functions = gdb.block_for_pc(address), []
    while block is not None and not block.is_global:
        if block.function is not None:
            functions.append(block.function.print_name)
        block = block.superblock
    line = gdb.find_pc_line(address)
    place = f" at {line.symtab.filename}:{line.line}" if line.symtab else ""
    inlined = "".join(f"\n      inlined in {outer}" for outer in functions[1:])
    return f"{address:#x} in {functions[0] if functions else '?'}{place}{inlined}"


def mains():
    """The main function of each program: read from the image when gdb starts, as the machine has
    no memory to read yet."""
    first, end = symbol("__programs_start"), symbol("__programs_end")
    program = gdb.lookup_type("runnext::api::program::Program")
    count = (end - first) // program.sizeof
    table = [gdb.Value(first + i * program.sizeof) for i in range(count)]
    table = [at.cast(program.pointer()).dereference() for at in table]
    return {text(entry["name"]): int(entry["main"]) for entry in table}


class BreakMain(gdb.Command):
    """break-main [name]: stops where that program's main begins; of several, the tour's."""

    def __init__(self, known):
        self.known = known
        super().__init__("break-main", gdb.COMMAND_BREAKPOINTS)

    def invoke(self, argument, from_tty):
        name = argument.strip() or ("tour" if len(self.known) > 1 else next(iter(self.known)))
        if name not in self.known:
            raise gdb.GdbError(f"no program {name}; there are {', '.join(sorted(self.known))}")
        # In a debug register: there is no memory at that address before the kernel runs.
        gdb.execute(f"thbreak *{self.known[name]:#x}")

    def complete(self, argument, word):
        return [name for name in self.known if name.startswith(word)]


GS = ["G", "state", "CPU", "name", "started at", "waits for"]
PS = ["P", "state", "G", "M", "front", "ring", "steals"]
Info("info gs", GS, rows_of_gs, "The live Gs.")
Info("info ms", ["M", "state", "G"], rows_of_ms, "The Ms.")
Info("info ps", PS, rows_of_ps, "The Ps, each with what runs there.")
Backtrace()
BreakMain(mains())
gdb.execute("set pagination off")
