package board

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const suite = "trixie"

// userPackages are what the board's user space needs; apt adds what they
// depend on.
var userPackages = []string{"busybox-static", "crun"}

// systemdPackages are what a board with systemd has beside them.
var systemdPackages = []string{"systemd", "systemd-sysv", "dbus"}

// packages are the archives that a board is unpacked from.
type packages struct {
	Kernel string   // path of the kernel's package
	User   []string // paths, sorted
}

// debs downloads Debian packages for a foreign architecture with the host's
// apt: those that are listed, or the newest by a package database of its own.
type debs struct {
	arch arch
	user []string // what its user space needs
	list string   // name of the list of packages
	dir  string   // state, downloaded archives and the record of a complete download
	say  *progress
	from map[string]string // addresses, by the path of what is downloaded by an index
}

// newDebs downloads the packages of a board below cache.
func newDebs(o Options, cache string, say *progress) *debs {
	a := arches[o.Arch]
	d := &debs{arch: a, user: userPackages, list: a.debian, say: say}
	if o.Systemd {
		d.user, d.list = slices.Concat(userPackages, systemdPackages), a.debian+"-systemd"
	}
	switch more := o.Stock.packages(); {
	case o.Stock == StockDebian:
		d.user, d.list = slices.Concat(d.user, more), a.debian+"-debian"
	case more != nil:
		d.user, d.list = slices.Concat(d.user, more), a.debian+"-stock"
	}
	if o.Dpkg {
		d.user, d.list = slices.Concat(d.user, dpkgPackages), a.debian+"-dpkg"
	}
	d.dir = filepath.Join(cache, "debian-"+d.list)
	return d
}

// fetch returns the packages, from the cache if they are all there.
func (d *debs) fetch(ctx context.Context) (packages, error) {
	list, err := locked(d.list)
	if err != nil {
		return packages{}, err
	}
	p, err := d.recorded(list)
	if err == nil {
		return p, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return packages{}, err
	}
	mirror, err := debianMirror("/etc/apt")
	if err != nil {
		return packages{}, err
	}
	if err := d.configure(mirror); err != nil {
		return packages{}, fmt.Errorf("configure apt for %s: %w", d.arch.debian, err)
	}
	p, lockErr := d.fetchLocked(ctx, mirror, list)
	if lockErr != nil && ctx.Err() == nil {
		d.say.printf("the mirror does not have all of the packages that are listed: taking the newest (%v)", lockErr)
		p, err = d.fetchNewest(ctx)
		if err != nil {
			err = errors.Join(lockErr, err)
		}
	}
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return packages{}, err
	}
	return p, d.record(list, p)
}

// fetchNewest returns the newest packages, by the mirror's index.
func (d *debs) fetchNewest(ctx context.Context) (packages, error) {
	d.say.printf("reading the index of Debian %s for %s", suite, d.arch.debian)
	if _, err := d.apt(ctx, "apt-get", "-qq", "update"); err != nil {
		return packages{}, err
	}
	return d.download(ctx)
}

func (d *debs) archives() string   { return filepath.Join(d.dir, "archives") }
func (d *debs) recordPath() string { return filepath.Join(d.dir, "packages.json") }
func (d *debs) configPath() string { return filepath.Join(d.dir, "apt.conf") }

// record is written last, so that it names complete downloads only.
type record struct {
	Requested []string `json:"Wanted"` // what was listed or to be found
	Kernel    string
	User      []string
}

// requested returns the names of the requested packages: another list is another download.
func (d *debs) requested(list []lockedPackage) []string {
	names := append([]string{d.arch.kernel}, d.user...)
	for _, l := range list {
		names = append(names, l.file())
	}
	return names
}

func (d *debs) recorded(list []lockedPackage) (packages, error) {
	b, err := os.ReadFile(d.recordPath())
	if err != nil {
		return packages{}, err
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return packages{}, fmt.Errorf("read %s: %w", d.recordPath(), err)
	}
	if !slices.Equal(r.Requested, d.requested(list)) {
		return packages{}, fs.ErrNotExist
	}
	p := packages{Kernel: filepath.Join(d.archives(), r.Kernel)}
	for _, u := range r.User {
		p.User = append(p.User, filepath.Join(d.archives(), u))
	}
	for _, path := range append(p.User, p.Kernel) {
		if _, err := os.Stat(path); err != nil {
			return packages{}, err
		}
	}
	return p, nil
}

func (d *debs) record(list []lockedPackage, p packages) error {
	r := record{Requested: d.requested(list), Kernel: filepath.Base(p.Kernel)}
	for _, u := range p.User {
		r.User = append(r.User, filepath.Base(u))
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(d.recordPath(), b, 0o644)
}

// configure writes the apt configuration. The host's own is read before it,
// for its proxies; its hooks are cleared.
func (d *debs) configure(mirror string) error {
	for _, dir := range []string{"lists/partial", "archives/partial", "empty"} {
		if err := os.MkdirAll(filepath.Join(d.dir, dir), 0o755); err != nil {
			return err
		}
	}
	at := func(name string) string { return filepath.Join(d.dir, name) }
	source := fmt.Sprintf("deb [signed-by=%s] %s %s main\n", keyring, mirror, suite)
	if err := os.WriteFile(at("sources.list"), []byte(source), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(at("status"), nil, 0o644); err != nil {
		return err
	}
	conf := strings.NewReplacer("ARCH", d.arch.debian, "DIR", d.dir).Replace(`APT::Architecture "ARCH";
#clear APT::Architectures;
APT::Architectures { "ARCH"; };
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::CNF::DefaultEnabled "false";
Dir::State "DIR";
Dir::State::lists "DIR/lists";
Dir::State::status "DIR/status";
Dir::Cache "DIR";
Dir::Cache::archives "DIR/archives";
Dir::Etc::SourceList "DIR/sources.list";
Dir::Etc::SourceParts "DIR/empty";
Dir::Etc::Preferences "DIR/none";
Dir::Etc::PreferencesParts "DIR/empty";
Dir::Etc::Trusted "DIR/none";
Dir::Etc::TrustedParts "DIR/empty";
`)
	return os.WriteFile(d.configPath(), []byte(conf), 0o644)
}

func (d *debs) apt(ctx context.Context, tool string, args ...string) ([]byte, error) {
	out, err := run(ctx, d.archives(), []string{"LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"}, tool,
		append([]string{"-c", d.configPath()}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("fetch Debian packages: %w", err)
	}
	return out, nil
}

// download fetches the packages and what they depend on. The kernel comes
// without its dependencies, which would make an initial file system.
func (d *debs) download(ctx context.Context) (packages, error) {
	out, err := d.apt(ctx, "apt-cache", "depends", d.arch.kernel)
	if err != nil {
		return packages{}, err
	}
	kernel := ""
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "Depends:" && strings.HasPrefix(f[1], "linux-image-") {
			kernel = f[1]
		}
	}
	if kernel == "" {
		return packages{}, fmt.Errorf("find the kernel that package %s depends on", d.arch.kernel)
	}
	install := append([]string{"-qq", "-y", "install"}, d.user...)
	user, err := d.names(ctx, install...)
	if err != nil {
		return packages{}, err
	}
	kernels, err := d.names(ctx, "-qq", "download", kernel)
	if err != nil {
		return packages{}, err
	}
	if len(kernels) != 1 || len(user) == 0 {
		return packages{}, fmt.Errorf("find packages: %d kernels and %d of user space", len(kernels), len(user))
	}
	d.say.printf("downloading %s and %d packages of user space", kernel, len(user))
	if _, err := d.apt(ctx, "apt-get", append([]string{"--download-only"}, install...)...); err != nil {
		return packages{}, err
	}
	if _, err := d.apt(ctx, "apt-get", "-qq", "download", kernel); err != nil {
		return packages{}, err
	}
	p := packages{Kernel: kernels[0], User: user}
	return p, d.prune(p)
}

// names returns the sorted paths that an apt-get command would download to.
func (d *debs) names(ctx context.Context, args ...string) ([]string, error) {
	out, err := d.apt(ctx, "apt-get", append([]string{"--print-uris"}, args...)...)
	if err != nil {
		return nil, err
	}
	var paths []string
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) >= 3 && strings.HasSuffix(f[1], ".deb") {
			path := filepath.Join(d.archives(), filepath.Base(f[1]))
			if d.from == nil {
				d.from = map[string]string{}
			}
			d.from[path], _ = url.PathUnescape(strings.Trim(f[0], "'"))
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths, nil
}

// prune deletes the archives of earlier downloads.
func (d *debs) prune(keep packages) error {
	found, err := filepath.Glob(filepath.Join(d.archives(), "*.deb"))
	if err != nil {
		return fmt.Errorf("list packages: %w", err)
	}
	for _, f := range found {
		if f == keep.Kernel || slices.Contains(keep.User, f) {
			continue
		}
		if err := os.Remove(f); err != nil {
			return fmt.Errorf("delete old package: %w", err)
		}
	}
	return nil
}

// writeFile replaces a file at once.
func writeFile(path string, b []byte, mode fs.FileMode) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, b, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
