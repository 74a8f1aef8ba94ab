package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// installed is a board's file system: the files that facts come from, by
// their path below proc, sys or root.
func installed(t *testing.T, files map[string]string) Roots {
	t.Helper()
	dir := t.TempDir()
	for path, text := range files {
		file := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Roots{Proc: filepath.Join(dir, "proc"), Sys: filepath.Join(dir, "sys"), Root: filepath.Join(dir, "root")}
}

const (
	machineID = "8f0e7a3c1b2d4e5f90a1b2c3d4e5f607"
	otherID   = "0123456789abcdef0123456789abcdef"
	bootID    = "5c1e2f7a-9a44-4d2f-8d4b-1a2b3c4d5e6f"
	product   = "4c4c4544-0042-3510-8052-b4c04f4d3732"
	serial    = "10000000b2f0c1d3"
)

func TestFacts(t *testing.T) {
	for _, row := range []struct {
		name  string
		files map[string]string
		want  Info
	}{
		{"nothing can be read", nil, Info{}},
		{
			"a board with a device tree",
			map[string]string{
				"root/etc/machine-id":               machineID + "\n",
				"proc/sys/kernel/random/boot_id":    bootID + "\n",
				"proc/device-tree/serial-number":    serial + "\x00",
				"root/etc/os-release":               "NAME=\"Debian GNU/Linux\"\nPRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\n",
				"proc/meminfo":                      "MemTotal:  1 kB\nSwapTotal:         102396 kB\n",
				"root/var/lib/dbus/machine-id":      otherID,
				"root/usr/lib/os-release":           "PRETTY_NAME=other",
				"proc/device-tree/chosen/something": "x",
			},
			Info{MachineID: machineID, SystemUUID: serial, BootID: bootID, OSImage: "Debian GNU/Linux 13 (trixie)", Swap: 102396 << 10},
		},
		{
			"firmware before device tree, dbus without systemd, stateless system, no swap",
			map[string]string{
				"sys/class/dmi/id/product_uuid":  product + "\n",
				"proc/device-tree/serial-number": serial + "\x00",
				"root/var/lib/dbus/machine-id":   machineID + "\n",
				"root/usr/lib/os-release":        "ID=x\nPRETTY_NAME=Buildroot\n",
				"proc/meminfo":                   "SwapTotal:         0 kB\n",
			},
			Info{MachineID: machineID, SystemUUID: product, OSImage: "Buildroot"},
		},
		{
			"POWER",
			map[string]string{"proc/device-tree/vm,uuid": product + "\x00", "proc/device-tree/system-id": "IBM,0378" + "\x00"},
			Info{SystemUUID: "IBM,0378"},
		},
		{
			"no hardware identity at all, as with a kubelet",
			map[string]string{"root/etc/machine-id": machineID},
			Info{MachineID: machineID, SystemUUID: machineID},
		},
		{
			"identities that are none",
			map[string]string{
				"root/etc/machine-id":            "uninitialized\n",
				"root/var/lib/dbus/machine-id":   "\xff\xfe\n",
				"proc/sys/kernel/random/boot_id": "a b",
				"sys/class/dmi/id/product_uuid":  "00000000-0000-0000-0000-000000000000",
				"proc/device-tree/serial-number": "0000000000000000\x00",
				"root/etc/os-release":            "PRETTY_NAME=\"a\x01b\"\n",
				"proc/meminfo":                   "SwapTotal: all kB\n",
			},
			Info{OSImage: "Linux"},
		},
		{
			"files that are too large",
			map[string]string{
				"root/etc/machine-id":            strings.Repeat("a", maxIdentity+1),
				"proc/sys/kernel/random/boot_id": strings.Repeat("a", maxSmall+1),
				"root/etc/os-release":            "PRETTY_NAME=" + strings.Repeat("a", maxOSImage+1),
			},
			Info{OSImage: "Linux"},
		},
		{"an empty machine ID does not hide the next", map[string]string{"root/etc/machine-id": "\n", "root/var/lib/dbus/machine-id": otherID},
			Info{MachineID: otherID, SystemUUID: otherID}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := ReadInfo(installed(t, row.files))
			if got.KernelVersion == "" {
				t.Error("uname tells no kernel")
			}
			got.KernelVersion = ""
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("facts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKernelVersionIsUnames(t *testing.T) {
	told, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	if got := ReadInfo(Roots{}).KernelVersion; got != strings.TrimSpace(string(told)) {
		t.Errorf("kernel %q, want %q", got, told)
	}
}

// TestFactsDoNotWait reads pipes in place of the files. A reader that blocks on
// them hangs.
func TestFactsDoNotWait(t *testing.T) {
	r := installed(t, map[string]string{"root/etc/x": ""})
	if err := unix.Mkfifo(filepath.Join(r.Root, "etc", "machine-id"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(r.Root, "etc", "os-release"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := ReadInfo(r); got.MachineID != "" || got.OSImage != "" {
		t.Errorf("facts %+v of a pipe and a folder", got)
	}
}

func TestPrettyName(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{`PRETTY_NAME="Raspberry Pi OS"`, "Raspberry Pi OS"},
		{"PRETTY_NAME='Raspberry Pi OS'\r\n", "Raspberry Pi OS"},
		{"PRETTY_NAME=Buildroot\nPRETTY_NAME=second\n", "Buildroot"},
		{`PRETTY_NAME="a \"b\" \$c \\d"`, `a "b" $c \d`},
		{`PRETTY_NAME='a \"b'`, `a \"b`},
		{`PRETTY_NAME="`, `"`},
		{`PRETTY_NAME="a`, `"a`},
		{"PRETTY_NAME=\"  \"", ""},
		{"PRETTY_NAME=", ""},
		{"NAME=a\n#PRETTY_NAME=b\nOTHER_PRETTY_NAME=c\n", ""},
		{"PRETTY_NAME=Grün", "Grün"},
		{"PRETTY_NAME=\xff", ""},
		{"", ""},
	} {
		if got := prettyName(row.text); got != row.want {
			t.Errorf("prettyName(%q) is %q, want %q", row.text, got, row.want)
		}
	}
}

func FuzzFacts(f *testing.F) {
	f.Add("PRETTY_NAME=\"a\\\"\"\n")
	f.Add(machineID + "\x00")
	f.Fuzz(func(t *testing.T, text string) {
		for _, got := range []string{prettyName(text), identity(text)} {
			if !utf8.ValidString(got) || len(got) > maxOSImage || strings.ContainsFunc(got, func(c rune) bool { return !unicode.IsPrint(c) }) {
				t.Errorf("%q of %q", got, text)
			}
		}
	})
}
