package protect

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadOnly(t *testing.T) {
	const maps = "00400000-01200000 r-xp 00000000 fe:00 1234                               /usr/bin/tinylet (deleted)\n" +
		"01200000-01a00000 r--p 00e00000 fe:00 1234                               /usr/bin/tinylet (deleted)\n" +
		"01a00000-01a80000 rw-p 01600000 fe:00 1234                               /usr/bin/tinylet (deleted)\n" +
		"01a80000-01b00000 rw-p 00000000 00:00 0 \n" +
		"02000000-02001000 r--p 00000000 fe:00 99                                 /usr/bin/other\n" +
		"7000-6000 r--p 00000000 fe:00 1234                                       /usr/bin/tinylet (deleted)\n" +
		"zz-6000 r--p 00000000 fe:00 1234                                         /usr/bin/tinylet (deleted)\n" +
		"torn\n"
	want := []part{{0x400000, 0x1200000}, {0x1200000, 0x1a00000}}
	if diff := cmp.Diff(want, readOnly([]byte(maps), "/usr/bin/tinylet (deleted)"), cmp.AllowUnexported(part{})); diff != "" {
		t.Error(diff)
	}
}

// TestKeepProgram looks whether the kernel shows the program as locked ("lo" in
// VmFlags, proc_pid_smaps(5)).
func TestKeepProgram(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: the kernel lets others keep too little")
	}
	if err := KeepProgram(); err != nil {
		t.Fatal(err)
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	parts, mine := 0, false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		switch fields := strings.Fields(line); {
		case strings.Contains(fields[0], "-"):
			mine = strings.HasSuffix(line, program) && strings.HasPrefix(fields[1], "r-")
		case mine && fields[0] == "VmFlags:":
			parts++
			if !strings.Contains(line+" ", " lo ") {
				t.Errorf("a part of the program is not kept: %s", line)
			}
		}
	}
	if parts == 0 {
		t.Error("no part of the program was found")
	}
}
