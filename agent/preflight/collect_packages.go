package preflight

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// runtimePackages are the distribution's packages that a node's containers run
// with.
var runtimePackages = []string{"containerd", "crun", "runc"}

// cvePattern is the name of a vulnerability in a changelog.
var cvePattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\bCVE-\d{4}-\d{4,7}\b`)
})

// packages reads dpkg's list of what is installed. It is empty on a system
// without dpkg.
func (t tree) packages() []Package {
	f, err := os.Open(t.path("var/lib/dpkg/status"))
	if err != nil {
		return nil
	}
	defer f.Close()
	found := installed(f)
	for i := range found {
		found[i].Changelog, found[i].Repairs = t.changelog(found[i].Name)
	}
	return found
}

// installed finds runtimePackages in dpkg's status file.
func installed(r io.Reader) []Package {
	var found []Package
	var p Package
	var present bool
	add := func() {
		if present && p.Version != "" && slices.Contains(runtimePackages, p.Name) {
			found = append(found, p)
		}
		p, present = Package{}, false
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxRead)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "":
			add()
		case "Package":
			p.Name = value
		case "Status":
			present = strings.HasSuffix(value, " installed")
		case "Version":
			_, version, epoch := strings.Cut(value, ":")
			if !epoch {
				version = value
			}
			p.Version = version
		}
	}
	add()
	return found
}

// changelog reads which vulnerabilities the package's own changelog names. It
// reports false where the package has none: small images leave it out.
func (t tree) changelog(name string) (found bool, cves []string) {
	b, err := t.read("usr/share/doc/" + name + "/changelog.Debian.gz")
	if err != nil {
		return false, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return false, nil
	}
	text, err := io.ReadAll(io.LimitReader(z, maxRead))
	if err != nil {
		return false, nil
	}
	for _, cve := range cvePattern().FindAllString(string(text), -1) {
		if !slices.Contains(cves, cve) {
			cves = append(cves, cve)
		}
	}
	return true, cves
}

// restartMonitorOff reports whether containerd's configuration file disables
// the plugin that restarts containers by their labels. Imported files are not
// read: what they disable counts as enabled.
func (t tree) restartMonitorOff() bool {
	b, err := t.read("etc/containerd/config.toml")
	if err != nil {
		return false
	}
	inside := false
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		key, value, assigned := strings.Cut(line, "=")
		if assigned && strings.TrimSpace(key) == "disabled_plugins" {
			inside, line = true, value
		}
		if !inside {
			continue
		}
		list, _, closed := strings.Cut(line, "]")
		if strings.Contains(list, `.v1.restart"`) || strings.Contains(list, `.v1.restart'`) {
			return true
		}
		inside = !closed
	}
	return false
}
