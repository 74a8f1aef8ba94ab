package preflight

import (
	"bufio"
	"io"
	"os"
	"slices"
	"strings"
)

// runtimePackages are the names of the distribution's packages that run containers.
var runtimePackages = []string{"containerd", "crun", "runc"}

// cvePattern matches the name of a vulnerability in a changelog.
var cvePattern = pattern(`\bCVE-\d{4}-\d{4,7}\b`)

// packages reads the installed packages from dpkg. It returns none on a system
// without dpkg.
func (t tree) packages() []Package {
	f, err := os.Open(t.path("var/lib/dpkg/status"))
	if err != nil {
		return nil
	}
	defer f.Close()
	found := installed(f)
	for i := range found {
		p := &found[i]
		text, err := t.readGzip("usr/share/doc/" + p.Name + "/changelog.Debian.gz") // small images omit it
		p.Changelog = err == nil
		p.FixedCVEs = cvePattern().FindAllString(string(text), -1)
	}
	return found
}

// installed returns the runtimePackages that dpkg's status file lists as installed.
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

// restartMonitorOff reports whether containerd's configuration file disables the
// plugin that restarts containers by their labels. Imported files are not read: a
// plugin that they disable counts as enabled.
func (t tree) restartMonitorOff() bool {
	b, _ := t.read(containerdConfig) // nil on an error
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
