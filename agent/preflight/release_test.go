package preflight

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRelease(t *testing.T) {
	for text, want := range map[string]release{
		"2.3.5":                 {number: releaseNumber{2, 3, 5}},
		"v2.3.5":                {number: releaseNumber{2, 3, 5}},
		"1.27":                  {number: releaseNumber{1, 27, 0}},
		" 2.0.12\n":             {number: releaseNumber{2, 0, 12}},
		"2.3.5-12-gabcdef0":     {number: releaseNumber{2, 3, 5}},
		"2.3.5-12-gabcdef0.m":   {number: releaseNumber{2, 3, 5}},
		"2.3.5-rc.1":            {number: releaseNumber{2, 3, 5}, build: preRelease},
		"2.3.5~rc1":             {number: releaseNumber{2, 3, 5}, build: preRelease},
		"1.7.24~ds1-6+b4":       {number: releaseNumber{1, 7, 24}, build: packaged},
		"1.7.24~ds1-6+deb13u1":  {number: releaseNumber{1, 7, 24}, build: packaged},
		"1.1.15+ds1-2":          {number: releaseNumber{1, 1, 15}, build: packaged},
		"1.7.12-0ubuntu4.1":     {number: releaseNumber{1, 7, 12}, build: packaged},
		"1.7.28-0ubuntu1~24.04": {number: releaseNumber{1, 7, 28}, build: packaged},
		"1.21-1":                {number: releaseNumber{1, 21, 0}, build: packaged},
		"2.0.5-k3s1":            {number: releaseNumber{2, 0, 5}, build: custom},
		"2.0.5+unknown":         {number: releaseNumber{2, 0, 5}, build: custom},
		"2.0.5.1":               {number: releaseNumber{2, 0, 5}, build: custom},
	} {
		if got, ok := parseRelease(text); !ok || got != want {
			t.Errorf("parseRelease(%q) = %+v, %v, want %+v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "v", "custom", "2", "2.x", "-1.2.3", "9999999.0.0", "<unknown>"} {
		if got, ok := parseRelease(text); ok {
			t.Errorf("parseRelease(%q) = %+v, want no release", text, got)
		}
	}
}

func FuzzParseRelease(f *testing.F) {
	for _, seed := range []string{"2.3.5", "v1.7.24~ds1-6+b4", "2.0.5-rc.1", "1.27", "custom", "99999999999999999999.1.1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, ok := parseRelease(text)
		if slices.Min(r.number[:]) < 0 || !ok && r != (release{}) {
			t.Errorf("parseRelease(%q) = %+v, %v", text, r, ok)
		}
		for _, finding := range checkRelease("containerd", text, vulnerabilities["containerd"], nil) {
			if finding.Level != Warn || finding.Remedy == "" {
				t.Errorf("version %q: %+v, want a warning with a remedy", text, finding)
			}
		}
	})
}

func TestJudgeReleases(t *testing.T) {
	const all = "CVE-2024-25621 CVE-2026-53488 CVE-2026-53495"
	debian := func(version string, changelog bool, repairs ...string) []Package {
		return []Package{{Name: "containerd", Version: version, Changelog: changelog, FixedCVEs: repairs}}
	}
	for _, tc := range []struct {
		name     string
		version  string // of containerd
		packages []Package
		off      bool   // the restart monitor
		cves     string // that the findings name; "" is no finding
		texts    string // parts of the findings
	}{
		{name: "first of a branch", version: "1.7.0", cves: all, texts: "use containerd 1.7.35 or later"},
		{name: "1.7 with some repairs", version: "1.7.34", cves: "CVE-2026-53495", texts: "1.7.35"},
		{name: "1.7 with all", version: "1.7.35"},
		{name: "2.0 with some", version: "2.0.10", cves: "CVE-2026-53495", texts: "2.0.12"},
		{name: "2.0 with all", version: "v2.0.12"},
		{name: "a branch without a repair", version: "2.1.9", cves: "CVE-2026-53495", texts: "2.2.8"},
		{name: "2.2 with none of this year", version: "2.2.4", cves: "CVE-2026-53488 CVE-2026-53495", texts: "2.2.8"},
		{name: "2.2 with all", version: "2.2.8"},
		{name: "2.3 with some", version: "2.3.2", cves: "CVE-2026-53495", texts: "2.3.5"},
		{name: "before the repair's release", version: "2.3.5-rc.1", cves: "CVE-2026-53495", texts: "2.3.5"},
		{name: "later branches", version: "2.4.0"},
		{name: "next major", version: "3.0.0"},
		{name: "restart monitor off", version: "2.0.2", off: true, cves: "CVE-2024-25621 CVE-2026-53495"},
		{name: "no version", version: "custom", texts: "cannot determine"},
		{name: "a fork", version: "2.0.5-k3s1", cves: all, texts: "cannot determine|not an upstream release"},
		{name: "a package without its changelog", version: "1.7.24~ds1-6+b4", cves: all, texts: "cannot determine|distribution"},
		{name: "the same, listed", version: "1.7.24~ds1-6+b4", packages: debian("1.7.24~ds1-6+b4", false), cves: all, texts: "cannot determine"},
		{name: "a package that names one repair", version: "1.7.24~ds1-6+deb13u1", packages: debian("1.7.24~ds1-6+deb13u1", true, "CVE-2024-25621", "CVE-2025-64329"), cves: "CVE-2026-53488 CVE-2026-53495", texts: "names no fix of CVE-2026-53488"},
		{name: "a package that names all", version: "1.7.24", packages: debian("1.7.24~ds1-6+deb13u9", true, "CVE-2024-25621", "CVE-2026-53488", "CVE-2026-53495")},
		{name: "another containerd than the package's", version: "2.0.2", packages: debian("1.7.24~ds1-6", true, "CVE-2026-53488"), cves: all, texts: "use containerd 2.0.12"},
		{name: "crun", version: "2.4.2", packages: []Package{{Name: "crun", Version: "1.21-1", Changelog: true}}, cves: "CVE-2026-30892", texts: "crun 1.21-1"},
		{name: "repaired crun", version: "2.4.2", packages: []Package{{Name: "crun", Version: "1.27-1"}}},
		{name: "runc of an old branch", version: "2.4.2", packages: []Package{{Name: "runc", Version: "1.1.15+ds1-2+b4"}}, cves: "CVE-2025-31133", texts: "cannot determine"},
		{name: "repaired runc", version: "2.4.2", packages: []Package{{Name: "runc", Version: "1.3.3-1"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := healthy()
			f.Runtime.Version, f.Packages, f.Runtime.RestartMonitorOff = tc.version, tc.packages, tc.off
			var text string
			findings := checkReleases(&f)
			if len(findings) > 1 {
				t.Errorf("%d findings of one program", len(findings))
			}
			for _, finding := range findings {
				if finding.Level != Warn || finding.Remedy == "" || !strings.HasSuffix(finding.ID, "-security") {
					t.Errorf("%+v, want a warning with a remedy", finding)
				}
				text += finding.What + "; " + finding.Remedy + "\n"
			}
			if tc.cves == "" && tc.texts == "" && len(findings) != 0 {
				t.Errorf("findings of %s:\n%s", tc.version, text)
			}
			for _, cve := range strings.Fields(all + " CVE-2026-30892 CVE-2025-31133") {
				if named, want := strings.Contains(text, cve), strings.Contains(tc.cves, cve); named != want {
					t.Errorf("%s named: %v, want %v in\n%s", cve, named, want, text)
				}
			}
			for want := range strings.SplitSeq(tc.texts, "|") {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in\n%s", want, text)
				}
			}
		})
	}
	f := healthy()
	f.Runtime.Name, f.Runtime.Version = "cri-o", "1.0"
	if got := checkReleases(&f); got != nil {
		t.Errorf("findings of another runtime: %v", got)
	}
}

func TestPackages(t *testing.T) {
	root := t.TempDir()
	write := func(name string, content []byte) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := tree(root).packages(); got != nil {
		t.Errorf("without dpkg: %v", got)
	}
	write("var/lib/dpkg/status", []byte(`Package: containerd
Status: install ok installed
Version: 1.7.24~ds1-6+b4
Description: runtime
 Version: 9.9.9

Package: runc
Status: deinstall ok config-files
Version: 1.1.15+ds1-2

Package: docker.io
Status: install ok installed
Version: 26.1.5

Package: crun
Status: install ok installed
Version: 1:1.21-1`))
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write([]byte("containerd (1)\n  * CVE-2024-25621, Fixes: CVE-2025-64329\n")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	write("usr/share/doc/containerd/changelog.Debian.gz", z.Bytes())
	write("usr/share/doc/crun/changelog.Debian.gz", []byte("not compressed"))
	want := []Package{
		{Name: "containerd", Version: "1.7.24~ds1-6+b4", Changelog: true, FixedCVEs: []string{"CVE-2024-25621", "CVE-2025-64329"}},
		{Name: "crun", Version: "1.21-1"},
	}
	if diff := cmp.Diff(want, tree(root).packages()); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
}

func TestRestartMonitorOff(t *testing.T) {
	board, err := os.ReadFile("../../buildroot/board/common/rootfs-overlay/etc/containerd/config.toml")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, text string
		want       bool
	}{
		{"the board's", string(board), true},
		{"one line", `disabled_plugins = ["io.containerd.internal.v1.restart"]`, true},
		{"none", "disabled_plugins = []\n", false},
		{"a comment", "disabled_plugins = [\n  # \"io.containerd.internal.v1.restart\",\n]\n", false},
		{"its settings", "disabled_plugins = [\n]\n[plugins.\"io.containerd.internal.v1.restart\"]\n", false},
		{"empty", "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.MkdirAll(filepath.Join(root, "etc/containerd"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, "etc/containerd/config.toml"), []byte(tc.text), 0o644); err != nil {
				t.Fatal(err)
			}
			if got := tree(root).restartMonitorOff(); got != tc.want {
				t.Errorf("restartMonitorOff() = %v, want %v", got, tc.want)
			}
		})
	}
}
