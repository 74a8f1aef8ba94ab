// Package pause makes the first process of a PID namespace that the containers of a pod share:
// a static ELF file of a few hundred bytes, assembled here. It sleeps in a system call until
// SIGTERM or SIGINT ends it, also as process 1, and lets the kernel reap the children that it
// inherits.
//
// The program blocks both signals, so that the kernel queues them even for
// process 1, ignores SIGCHLD, which makes the kernel reap (sigaction(2)), and
// waits in rt_sigtimedwait(2) without a timeout.
package pause

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
)

const (
	base     = 0x10000 // load address
	wakeSet  = 1<<(2-1) | 1<<(15-1)
	sigIgn   = 1
	sigChld  = 17
	setSize  = 8
	actBytes = 32 // the largest struct sigaction of the kernel
)

// Program returns the executable for a GOARCH: arm64, arm or amd64.
func Program(goarch string) ([]byte, error) {
	switch goarch {
	case "arm64":
		return file64(elf.EM_AARCH64, code64()), nil
	case "arm":
		return file32(code32()), nil
	case "amd64":
		return file64(elf.EM_X86_64, codeAMD64()), nil
	}
	return nil, fmt.Errorf("pause program for %q: unknown architecture", goarch)
}

// data follows the code: the signal set, then a sigaction that ignores. Only
// the handler field is set, which comes first on both architectures.
func data() []byte {
	b := make([]byte, setSize+actBytes)
	binary.LittleEndian.PutUint64(b, wakeSet)
	b[setSize] = sigIgn
	return b
}

// assembler collects instruction words; addresses of data are patched when
// the length of the code is known.
type assembler struct {
	words   []uint32
	patches []func(dataOff int)
}

func (a *assembler) emit(w ...uint32) { a.words = append(a.words, w...) }

func (a *assembler) finish() []byte {
	for len(a.words)%2 != 0 { // data is aligned to 8 bytes
		a.emit(0)
	}
	size := 4 * len(a.words)
	for _, p := range a.patches {
		p(size)
	}
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, a.words) // a Buffer takes all
	b.Write(data())
	return b.Bytes()
}

// System call numbers of asm-generic/unistd.h.
const (
	sys64Sigaction   = 134
	sys64Sigprocmask = 135
	sys64Sigwait     = 137
	sys64ExitGroup   = 94
)

func code64() []byte {
	a := &assembler{}
	mov := func(reg, imm uint32) { a.emit(0xd2800000 | imm<<5 | reg) } // movz
	adr := func(reg uint32, off int) {
		at := len(a.words)
		a.emit(0)
		a.patches = append(a.patches, func(dataOff int) {
			rel := uint32(dataOff + off - 4*at)
			a.words[at] = 0x10000000 | rel&3<<29 | rel>>2<<5 | reg
		})
	}
	call := func(nr uint32) { mov(8, nr); a.emit(0xd4000001) } // svc #0
	mov(0, 0)
	adr(1, 0)
	mov(2, 0)
	mov(3, setSize)
	call(sys64Sigprocmask)
	mov(0, sigChld)
	adr(1, setSize)
	mov(2, 0)
	mov(3, setSize)
	call(sys64Sigaction)
	loop := len(a.words)
	adr(0, 0)
	mov(1, 0)
	mov(2, 0)
	mov(3, setSize)
	call(sys64Sigwait)
	a.emit(0xf100001f)                                                 // cmp x0, #0
	a.emit(0x54000000 | uint32(loop-len(a.words))&0x7ffff<<5 | 0b1101) // b.le loop
	mov(0, 0)
	call(sys64ExitGroup)
	return a.finish()
}

// System call numbers of the ARM EABI (arch/arm/tools/syscall.tbl).
const (
	sys32Sigaction   = 174
	sys32Sigprocmask = 175
	sys32Sigwait     = 177
	sys32ExitGroup   = 248
)

func code32() []byte {
	a := &assembler{}
	mov := func(reg, imm uint32) { a.emit(0xe3a00000 | reg<<12 | imm) }
	adr := func(reg uint32, off int) {
		at := len(a.words)
		a.emit(0)
		a.patches = append(a.patches, func(dataOff int) {
			rel := uint32(dataOff + off - 4*at - 8)  // pc is two words ahead
			a.words[at] = 0xe28f0000 | reg<<12 | rel // add reg, pc, #rel
		})
	}
	call := func(nr uint32) { mov(7, nr); a.emit(0xef000000) } // svc 0
	mov(0, 0)
	adr(1, 0)
	mov(2, 0)
	mov(3, setSize)
	call(sys32Sigprocmask)
	mov(0, sigChld)
	adr(1, setSize)
	mov(2, 0)
	mov(3, setSize)
	call(sys32Sigaction)
	loop := len(a.words)
	adr(0, 0)
	mov(1, 0)
	mov(2, 0)
	mov(3, setSize)
	call(sys32Sigwait)
	a.emit(0xe3500000)                                        // cmp r0, #0
	a.emit(0xda000000 | uint32(loop-len(a.words)-2)&0xffffff) // ble loop
	mov(0, 0)
	call(sys32ExitGroup)
	return a.finish()
}

// System call numbers of amd64 (arch/x86/entry/syscalls/syscall_64.tbl).
const (
	sysAMD64Sigaction   = 13
	sysAMD64Sigprocmask = 14
	sysAMD64Sigwait     = 128
	sysAMD64ExitGroup   = 231
)

func codeAMD64() []byte {
	var code []byte
	var patches []func(dataOff int)
	emit := func(b ...byte) { code = append(code, b...) }
	number := func(n int) { code = binary.LittleEndian.AppendUint32(code, uint32(n)) }
	lea := func(opcode []byte, off int) { // register, [rip + distance to the data]
		emit(opcode...)
		at := len(code)
		number(0)
		patches = append(patches, func(dataOff int) { binary.LittleEndian.PutUint32(code[at:], uint32(dataOff+off-at-4)) })
	}
	leaRSI, leaRDI := []byte{0x48, 0x8d, 0x35}, []byte{0x48, 0x8d, 0x3d}
	zeroRDI, zeroRSI, zeroRDX := []byte{0x31, 0xff}, []byte{0x31, 0xf6}, []byte{0x31, 0xd2}
	call := func(nr int) {
		emit(0x41, 0xba) // mov r10d
		number(setSize)
		emit(0xb8) // mov eax
		number(nr)
		emit(0x0f, 0x05) // syscall
	}
	emit(zeroRDI...)
	lea(leaRSI, 0)
	emit(zeroRDX...)
	call(sysAMD64Sigprocmask)
	emit(0xbf) // mov edi
	number(sigChld)
	lea(leaRSI, setSize)
	emit(zeroRDX...)
	call(sysAMD64Sigaction)
	loop := len(code)
	lea(leaRDI, 0)
	emit(zeroRSI...)
	emit(zeroRDX...)
	call(sysAMD64Sigwait)
	emit(0x48, 0x85, 0xc0)                   // test rax, rax
	emit(0x7e, byte(int8(loop-len(code)-2))) // jle loop
	emit(zeroRDI...)
	call(sysAMD64ExitGroup)
	for len(code)%8 != 0 {
		emit(0x90) // nop
	}
	for _, p := range patches {
		p(len(code))
	}
	return append(code, data()...)
}

func file64(machine elf.Machine, code []byte) []byte {
	const head = 64 + 56
	size := uint64(head + len(code))
	h := elf.Header64{
		Ident: ident(elf.ELFCLASS64), Type: uint16(elf.ET_EXEC), Machine: uint16(machine),
		Version: uint32(elf.EV_CURRENT), Entry: base + head, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
	}
	p := elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X),
		Vaddr: base, Paddr: base, Filesz: size, Memsz: size, Align: base,
	}
	return join(h, p, code)
}

func file32(code []byte) []byte {
	const (
		head    = 52 + 32
		pad     = 4 // aligns the code to 8 bytes
		eabiVer = 0x05000000
	)
	size := uint32(head + pad + len(code))
	h := elf.Header32{
		Ident: ident(elf.ELFCLASS32), Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_ARM),
		Version: uint32(elf.EV_CURRENT), Entry: base + head + pad, Phoff: 52, Flags: eabiVer,
		Ehsize: 52, Phentsize: 32, Phnum: 1,
	}
	p := elf.Prog32{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X),
		Vaddr: base, Paddr: base, Filesz: size, Memsz: size, Align: base,
	}
	return join(h, p, append(make([]byte, pad), code...))
}

func ident(class elf.Class) [elf.EI_NIDENT]byte {
	id := [elf.EI_NIDENT]byte{
		elf.EI_CLASS: byte(class), elf.EI_DATA: byte(elf.ELFDATA2LSB), elf.EI_VERSION: byte(elf.EV_CURRENT),
	}
	copy(id[:], elf.ELFMAG)
	return id
}

func join(header, prog any, code []byte) []byte {
	var b bytes.Buffer
	for _, v := range []any{header, prog, code} {
		_ = binary.Write(&b, binary.LittleEndian, v) // a Buffer takes all
	}
	return b.Bytes()
}
