package board

import (
	"bytes"
	"fmt"
	"io/fs"
)

// groupsBySystemd has the product's configuration say that systemd makes
// cgroups, as somebody does who installs it on Debian.
func groupsBySystemd(t *tree) error {
	for _, edit := range []struct{ file, is, want string }{
		{"etc/containerd/config.toml", "SystemdCgroup = false", "SystemdCgroup = true"},
		{"etc/tinylet/config.yaml", "cgroupDriver: cgroupfs", "cgroupDriver: systemd"},
	} {
		text, err := t.root.ReadFile(edit.file)
		if err != nil {
			return fmt.Errorf("choose the cgroup driver: %w", err)
		}
		if n := bytes.Count(text, []byte(edit.is)); n != 1 {
			return fmt.Errorf("choose the cgroup driver: %s has %q %d times: %w", edit.file, edit.is, n, fs.ErrInvalid)
		}
		text = bytes.Replace(text, []byte(edit.is), []byte(edit.want), 1)
		if err := t.file(edit.file, 0o644, bytes.NewReader(text)); err != nil {
			return err
		}
	}
	return nil
}
