package board

import (
	"bufio"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// The packages that boards are made of, by architecture of Debian and, for
// those with systemd, with that in the name: a line for
// each, its SHA-256 and where it lies on a mirror. A board is the same
// everywhere then, its measurements compare, and a mirror that is in the midst of an
// update, so that its index does not fit what signs it, has the packages all
// the same. `board lock` writes such a list.
//
//go:embed packages
var locks embed.FS

// lockedPackage is a line of a list.
type lockedPackage struct {
	sum  string // hexadecimal
	path string // below the mirror
}

func (l lockedPackage) file() string   { return path.Base(l.path) }
func (l lockedPackage) isKernel() bool { return strings.HasPrefix(l.file(), "linux-image-") }

// locked is the list of that name.
func locked(name string) ([]lockedPackage, error) {
	f, err := locks.Open("packages/" + name)
	if err != nil {
		return nil, fmt.Errorf("open the list of packages: %w", err)
	}
	defer f.Close()
	return readLock(f)
}

// readLock reads a list: one kernel, and more.
func readLock(r io.Reader) ([]lockedPackage, error) {
	list, err := readList(r)
	if err != nil {
		return nil, err
	}
	kernels := 0
	for _, l := range list {
		if l.isKernel() {
			kernels++
		}
	}
	if kernels != 1 || len(list) < 2 {
		return nil, fmt.Errorf("list of packages: %d kernels in %d packages", kernels, len(list))
	}
	return list, nil
}

// readList reads a list of any packages.
func readList(r io.Reader) ([]lockedPackage, error) {
	var list []lockedPackage
	for lines := bufio.NewScanner(r); lines.Scan(); {
		sum, at, ok := strings.Cut(lines.Text(), "  ")
		raw, err := hex.DecodeString(sum)
		l := lockedPackage{sum: sum, path: at}
		switch {
		case !ok || err != nil || len(raw) != sha256.Size:
			return nil, fmt.Errorf("list of packages: %q is no SHA-256 and path", lines.Text())
		case !fs.ValidPath(at) || !strings.HasPrefix(at, "pool/") || !strings.HasSuffix(at, ".deb"):
			return nil, fmt.Errorf("list of packages: %q is no package of a mirror", at)
		}
		list = append(list, l)
	}
	return list, nil
}

// fetchLocked downloads what the list names. apt's helper does it, by apt's own
// ways to a mirror, and checks the sums.
func (d *debs) fetchLocked(ctx context.Context, mirror string, list []lockedPackage) (packages, error) {
	args := []string{"download-file"}
	p := packages{}
	for _, l := range list {
		to := filepath.Join(d.archives(), l.file())
		if l.isKernel() {
			p.Kernel = to
		} else {
			p.User = append(p.User, to)
		}
		if sum, err := sumOf(to); err == nil && sum == l.sum {
			continue
		}
		args = append(args, mirror+"/"+l.path, to, "SHA256:"+l.sum)
	}
	slices.Sort(p.User)
	d.say.printf("downloading %s and %d packages of user space", filepath.Base(p.Kernel), len(p.User))
	if len(args) > 1 {
		if _, err := d.apt(ctx, "/usr/lib/apt/apt-helper", args...); err != nil {
			return packages{}, err
		}
	}
	for _, l := range list { // whatever the helper has thought of it
		if sum, err := sumOf(filepath.Join(d.archives(), l.file())); err != nil || sum != l.sum {
			return packages{}, fmt.Errorf("fetch %s: its SHA-256 is %s, not %s: %w", l.path, sum, l.sum, errors.Join(err, os.ErrInvalid))
		}
	}
	return p, d.prune(p)
}

// sumOf is a file's SHA-256, in hexadecimal.
func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Lock writes the list of the newest packages for such a board, by Debian's
// index and its signature. It downloads them into a folder that goes.
func Lock(ctx context.Context, o Options, w io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	if err := checkHost(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "board-lock-")
	if err != nil {
		return fmt.Errorf("list packages: %w", err)
	}
	defer os.RemoveAll(dir)
	mirror, err := debianMirror("/etc/apt")
	if err != nil {
		return err
	}
	d := newDebs(o, dir, newProgress(o.Progress))
	if err := d.configure(mirror); err != nil {
		return fmt.Errorf("configure apt for %s: %w", d.arch.debian, err)
	}
	p, err := d.fetchNewest(ctx)
	if err != nil {
		return err
	}
	for _, file := range append([]string{p.Kernel}, p.User...) {
		sum, err := sumOf(file)
		if err != nil {
			return err
		}
		at, ok := strings.CutPrefix(d.from[file], mirror+"/")
		if !ok {
			return fmt.Errorf("list packages: %s is not from %s", d.from[file], mirror)
		}
		if _, err := fmt.Fprintf(w, "%s  %s\n", sum, at); err != nil {
			return err
		}
	}
	return nil
}
