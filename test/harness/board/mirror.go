package board

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mirrorVariable names the environment variable that overrides the mirror.
const mirrorVariable = "TINYLET_DEBIAN_MIRROR"

// keyring verifies what the mirror serves. Keyrings since 2023 have the key
// of Debian 12, with which Debian 13 is signed too.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// debianSuites are the release names that identify a Debian mirror.
var debianSuites = []string{"bullseye", "bookworm", "trixie", "forky", "sid", "oldstable", "stable", "testing", "unstable"}

// debianMirror returns the address of a Debian mirror: the one that the
// environment names, else the first in the machine's own sources.
func debianMirror(aptDir string) (string, error) {
	if m := os.Getenv(mirrorVariable); m != "" {
		return strings.TrimRight(m, "/"), nil
	}
	files, err := filepath.Glob(filepath.Join(aptDir, "sources.list.d", "*"))
	if err != nil {
		return "", fmt.Errorf("find Debian mirror: %w", err)
	}
	for _, f := range append([]string{filepath.Join(aptDir, "sources.list")}, files...) {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // a missing or unreadable file names no mirror
		}
		parse := listMirror
		if strings.HasSuffix(f, ".sources") {
			parse = deb822Mirror
		}
		if m := parse(string(b)); m != "" {
			return m, nil
		}
	}
	return "", fmt.Errorf("no Debian mirror in %s: set %s to the address of one, such as http://HOST/debian", aptDir, mirrorVariable)
}

// listMirror reads the one-line format of sources.list(5).
func listMirror(s string) string {
	for line := range strings.Lines(s) {
		line, _, _ = strings.Cut(line, "#")
		if i := strings.IndexByte(line, '['); i >= 0 {
			if j := strings.IndexByte(line, ']'); j > i {
				line = line[:i] + line[j+1:]
			}
		}
		f := strings.Fields(line)
		if len(f) >= 4 && f[0] == "deb" && usable(f[1], f[2:3], f[3:]) {
			return strings.TrimRight(f[1], "/")
		}
	}
	return ""
}

// deb822Mirror reads the stanza format of sources.list(5).
func deb822Mirror(s string) string {
	fields := map[string][]string{}
	check := func() string {
		for _, uri := range fields["uris"] {
			if slices.Contains(fields["types"], "deb") && !slices.Contains(fields["enabled"], "no") &&
				usable(uri, fields["suites"], fields["components"]) {
				return strings.TrimRight(uri, "/")
			}
		}
		return ""
	}
	last := ""
	sc := bufio.NewScanner(strings.NewReader(s))
	for sc.Scan() {
		line := sc.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		if strings.TrimSpace(line) == "" {
			if m := check(); m != "" {
				return m
			}
			clear(fields)
			continue
		}
		if line[0] != ' ' && line[0] != '\t' {
			name, value, _ := strings.Cut(line, ":")
			last, line = strings.ToLower(name), value
		}
		fields[last] = append(fields[last], strings.Fields(line)...)
	}
	return check()
}

// usable reports whether an address is a mirror of a whole release, and not an
// archive of updates. uri becomes a word of a sources.list.
func usable(uri string, suites, components []string) bool {
	web := strings.HasPrefix(uri, "http://") || strings.HasPrefix(uri, "https://")
	return web && !strings.ContainsAny(uri, "[]#") && slices.Contains(components, "main") &&
		slices.ContainsFunc(suites, func(s string) bool { return slices.Contains(debianSuites, s) })
}
