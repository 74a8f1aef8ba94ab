package pause

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"
)

func TestProgram(t *testing.T) {
	tests := []struct {
		goarch  string
		machine elf.Machine
		svc     uint32 // the system call instruction
		calls   int
	}{
		{"arm64", elf.EM_AARCH64, 0xd4000001, 4},
		{"arm", elf.EM_ARM, 0xef000000, 4},
	}
	for _, tt := range tests {
		t.Run(tt.goarch, func(t *testing.T) {
			b, err := Program(tt.goarch)
			if err != nil {
				t.Fatal(err)
			}
			if len(b) > 400 {
				t.Errorf("program has %d bytes", len(b))
			}
			f, err := elf.NewFile(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			if f.Machine != tt.machine || f.Type != elf.ET_EXEC {
				t.Errorf("file is %v %v", f.Machine, f.Type)
			}
			if len(f.Progs) != 1 || f.Progs[0].Filesz != uint64(len(b)) {
				t.Fatalf("segments: %+v", f.Progs)
			}
			off := f.Entry - f.Progs[0].Vaddr
			if off%8 != 0 || off >= uint64(len(b)) {
				t.Fatalf("entry at offset %d", off)
			}
			calls := 0
			for ; off+4 <= uint64(len(b)); off += 4 {
				if binary.LittleEndian.Uint32(b[off:]) == tt.svc {
					calls++
				}
			}
			if calls != tt.calls {
				t.Errorf("%d system calls, want %d", calls, tt.calls)
			}
		})
	}
	if _, err := Program("mips"); err == nil {
		t.Error("an unknown architecture was accepted")
	}
}
