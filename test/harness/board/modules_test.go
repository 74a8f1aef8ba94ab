package board

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestModuleName(t *testing.T) {
	tests := map[string]string{
		"kernel/net/bridge/br_netfilter.ko.xz": "br_netfilter",
		"kernel/arch/arm/crc32-arm-ce.ko":      "crc32_arm_ce",
		"x.ko.zst":                             "x",
	}
	for in, want := range tests {
		if got := moduleName(in); got != want {
			t.Errorf("name of %s is %q, want %q", in, got, want)
		}
	}
}

func TestNeededFolder(t *testing.T) {
	tests := map[string]bool{
		"kernel/fs/overlayfs":               true,
		"kernel/fs/xfs":                     false,
		"kernel/net/bridge":                 true,
		"kernel/net/bridge/netfilter":       true,
		"kernel/net/bridgexyz":              false,
		"kernel/drivers/net":                true,
		"kernel/drivers/net/ethernet/intel": false,
	}
	for folder, want := range tests {
		if got := neededFolder(folder); got != want {
			t.Errorf("folder %s wanted: %v", folder, got)
		}
	}
}

func TestParseModinfo(t *testing.T) {
	in := "license=GPL\x00depends=nf-conntrack,nf_tables\x00alias=fs-overlay\x00alias=nft-expr-1\x00softdep=pre: crc32c\x00\x00odd\x00depends="
	want := module{depends: []string{"nf_conntrack", "nf_tables"}, aliases: []string{"fs-overlay", "nft-expr-1"}, softdep: []string{"pre: crc32c"}}
	if d := cmp.Diff(want, parseModinfo([]byte(in)), cmp.AllowUnexported(module{})); d != "" {
		t.Error(d)
	}
}

func FuzzParseModinfo(f *testing.F) {
	f.Add([]byte("depends=a,b\x00alias=c"))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, d := range parseModinfo(in).depends {
			if d == "" || strings.ContainsAny(d, "-,\x00") {
				t.Errorf("dependency %q", d)
			}
		}
	})
}

func TestModuleOrder(t *testing.T) {
	ms := modules{
		"ext4":   {path: "k/ext4.ko", depends: []string{"jbd2", "crc16"}, aliases: []string{"fs-ext4"}, softdep: []string{"pre: crc32c"}},
		"jbd2":   {path: "k/jbd2.ko", depends: []string{"crc16"}},
		"crc16":  {path: "k/crc16.ko"},
		"circle": {path: "k/circle.ko", depends: []string{"circle", "builtin"}},
	}
	tests := []struct {
		name string
		of   []string
		want []string
	}{
		{"dependencies first", []string{"ext4"}, []string{"crc16", "jbd2", "ext4"}},
		{"each once", []string{"jbd2", "ext4", "crc16"}, []string{"crc16", "jbd2", "ext4"}},
		{"built in", []string{"none", "crc16"}, []string{"crc16"}},
		{"circle", []string{"circle"}, []string{"circle"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, ms.loadOrder(tt.of...)); d != "" {
				t.Error(d)
			}
		})
	}
	want := map[string]string{
		"modules.dep":     "k/circle.ko:\nk/crc16.ko:\nk/ext4.ko: k/jbd2.ko k/crc16.ko\nk/jbd2.ko: k/crc16.ko\n",
		"modules.alias":   "alias fs-ext4 ext4\n",
		"modules.softdep": "softdep ext4 pre: crc32c\n",
	}
	if d := cmp.Diff(want, ms.index()); d != "" {
		t.Error(d)
	}
}
