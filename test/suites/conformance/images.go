package conformance

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/tinylet/tinylet/agent/container/native/pause"
	"github.com/tinylet/tinylet/test/harness/board/imagetar"
)

// Programs are what the images are made of: static programs of the board.
type Programs struct {
	Busybox, Bash, Agnhost, AgnhostUpstream, Nonewprivs []byte
	Certificate, Key                                    []byte // of upstream's agnhost, for localhost
}

// maker makes an image of upstream's name.
type maker func(name, goarch string, p Programs) (imagetar.Image, error)

// makers are by the last part of the image's name without its tag.
var makers = map[string]maker{
	"agnhost":           agnhost,
	"busybox":           busybox,
	"glibc-dns-testing": busybox,
	"nginx":             nginx,
	"nonewprivs":        nonewprivs,
	"nonroot":           nonroot,
	"pause":             sandbox,
}

// Images returns an image for each of the names that the selected tests use,
// of all that the suite may use (e2e.test --list-images).
func Images(names []string, goarch string, p Programs) ([]imagetar.Image, error) {
	var images []imagetar.Image
	missing := maps.Clone(makers)
	for _, name := range names {
		kind, _, _ := strings.Cut(path.Base(name), ":")
		if makers[kind] == nil || strings.Contains(name, "authenticated") {
			continue
		}
		delete(missing, kind)
		im, err := makers[kind](name, goarch, p)
		if err != nil {
			return nil, fmt.Errorf("make image %s: %w", name, err)
		}
		images = append(images, im)
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("make images: upstream's list names none of %v", slices.Sorted(maps.Keys(missing)))
	}
	return images, nil
}

// shell is BusyBox's shell, whose messages a test of a read-only root compares, and
// Bash where a name of the environment is not a shell's, such as data-1: the shell of
// Debian's BusyBox does not pass such variables on, and tests read them through it.
const shell = `#!/bin/bash
while IFS= read -r -d '' variable; do
	case ${variable%%=*} in *[!A-Za-z0-9_]*) exec -a "$0" /bin/bash "$@" ;; esac
done </proc/self/environ
exec -a "$0" /bin/busybox "$@"
`

// busybox has the programs of BusyBox, with shell for its shell.
func busybox(name, goarch string, p Programs) (imagetar.Image, error) {
	im, err := imagetar.Busybox(name, goarch, p.Busybox)
	if err != nil {
		return im, err
	}
	im.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for i := range im.Files {
		if f := &im.Files[i]; f.Name == "bin/sh" {
			f.Link, f.Mode, f.Data = "", 0o755, []byte(shell)
		}
	}
	im.Files = append(im.Files, imagetar.File{Name: "bin/bash", Mode: 0o755, Data: p.Bash})
	return im, nil
}

// curl gets a page as tests of hooks call it.
const curl = "#!/bin/sh\nexec wget -q -O - \"$@\"\n"

// agnhost has a user with a group of its own in the image, which a test of
// supplemental groups asks for, a second name of the program, upstream's whole
// program beside the one that starts faster (upstream/agnhost), and a certificate
// for tests of https.
func agnhost(name, goarch string, p Programs) (imagetar.Image, error) {
	im, err := busybox(name, goarch, p)
	if err != nil {
		return im, err
	}
	im.Entrypoint, im.Cmd = []string{"/agnhost"}, []string{"pause"}
	replace(&im, "etc/passwd", "root:x:0:0:root:/root:/bin/sh\nuser-defined-in-image:x:1000:1000::/:/bin/sh\n")
	replace(&im, "etc/group", "root:x:0:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n")
	im.Files = append(im.Files,
		imagetar.File{Name: "agnhost", Mode: 0o755, Data: p.Agnhost},
		imagetar.File{Name: "agnhost-2", Link: "agnhost"},
		imagetar.File{Name: "agnhost-upstream", Mode: 0o755, Data: p.AgnhostUpstream},
		imagetar.File{Name: "localhost.crt", Mode: 0o644, Data: p.Certificate},
		imagetar.File{Name: "localhost.key", Mode: 0o644, Data: p.Key},
		imagetar.File{Name: "bin/curl", Mode: 0o755, Data: []byte(curl)},
		imagetar.File{Name: "uploads/", Mode: 0o755},
	)
	return im, nil
}

func replace(im *imagetar.Image, name, text string) {
	for i := range im.Files {
		if im.Files[i].Name == name {
			im.Files[i].Data = []byte(text)
		}
	}
}

// nginx answers on port 80, which is all that the selected tests ask of it.
func nginx(name, goarch string, p Programs) (imagetar.Image, error) {
	im, err := busybox(name, goarch, p)
	im.Cmd = []string{"httpd", "-f", "-p", "80", "-h", "/usr/share/nginx/html"}
	im.Files = append(im.Files, imagetar.File{Name: "usr/share/nginx/html/index.html", Mode: 0o644, Data: []byte("Welcome to nginx!\n")})
	return im, err
}

func nonewprivs(name, goarch string, p Programs) (imagetar.Image, error) {
	im, err := busybox(name, goarch, p)
	im.Cmd = []string{"nnp"}
	im.Files = append(im.Files, imagetar.File{Name: "usr/local/bin/nnp", Mode: 0o755, Data: p.Nonewprivs})
	return im, err
}

func nonroot(name, goarch string, p Programs) (imagetar.Image, error) {
	im, err := busybox(name, goarch, p)
	im.User = "1234"
	return im, err
}

func sandbox(name, goarch string, _ Programs) (imagetar.Image, error) {
	program, err := pause.Program(goarch)
	return imagetar.Image{
		Name: name, GOARCH: goarch, Entrypoint: []string{"/pause"}, User: "65535:65535",
		Files: []imagetar.File{{Name: "pause", Mode: 0o755, Data: program}},
	}, err
}
