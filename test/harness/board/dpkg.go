package board

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// dpkgPackages are what a board has beside the others on which packages can be
// installed: what every Debian system has.
var dpkgPackages = []string{"?essential", "dpkg", "init-system-helpers"}

// ofProduct are the files of the overlays that the product's package brings.
var ofProduct = []string{
	"etc/kubernetes",
	"etc/kubernetes/manifests",
	"etc/kubernetes/manifests/.keep",
	"etc/tinylet/config.yaml",
	"etc/init.d/S50tinylet",
	"etc/systemd/system/kubelet.service",
	"etc/systemd/system/multi-user.target.wants/tinylet.service",
	"usr/lib/systemd/system/tinylet.service",
}

// leaveOut reports whether the board does not get a file of an overlay.
func (p rootParts) leaveOut(name string) bool {
	return p.stock.leaveOut(name) || p.dpkg && slices.Contains(ofProduct, name)
}

// keptForDpkg reports whether a program of an essential package needs a file that other
// boards do not have.
func keptForDpkg(name string) bool {
	for _, dir := range []string{"usr/share/dpkg/", "usr/share/perl5/", "usr/share/debconf/"} {
		if strings.HasPrefix(name, dir) {
			return true
		}
	}
	return false
}

// dpkgDatabase is dpkg's database, in which the packages of the board are installed.
// Their maintainer scripts have not run.
type dpkgDatabase struct{ status bytes.Buffer }

// add adds a package and the list of its files to the database.
func (d *dpkgDatabase) add(ctx context.Context, t *tree, deb string, files []string) error {
	control, err := run(ctx, "", nil, "dpkg-deb", "--field", deb)
	if err != nil {
		return fmt.Errorf("read the control file of %s: %w", filepath.Base(deb), err)
	}
	first, rest, _ := strings.Cut(string(control), "\n")
	fmt.Fprintf(&d.status, "%s\nStatus: install ok installed\n%s\n", first, rest)
	name := strings.TrimPrefix(first, "Package: ")
	if strings.Contains(rest, "\nMulti-Arch: same\n") {
		_, architecture, _ := strings.Cut(rest, "Architecture: ")
		architecture, _, _ = strings.Cut(architecture, "\n")
		name += ":" + architecture
	}
	list := "/.\n"
	for _, f := range files {
		list += "/" + f + "\n"
	}
	return t.file("var/lib/dpkg/info/"+name+".list", 0o644, strings.NewReader(list))
}

// write writes what is not of one package.
func (d *dpkgDatabase) write(t *tree) error {
	for _, file := range []struct {
		name string
		data []byte
	}{
		{"status", d.status.Bytes()},
		{"available", nil},
		{"info/format", []byte("1\n")},
	} {
		if err := t.file("var/lib/dpkg/"+file.name, 0o644, bytes.NewReader(file.data)); err != nil {
			return err
		}
	}
	for _, dir := range []string{"updates", "triggers", "alternatives", "parts"} {
		if err := t.dir("var/lib/dpkg/"+dir, 0o755); err != nil {
			return err
		}
	}
	return t.dir("etc/dpkg/dpkg.cfg.d", 0o755)
}
