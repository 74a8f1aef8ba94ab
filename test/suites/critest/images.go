package critest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"github.com/tinylet/tinylet/test/harness/board/imagetar"
)

// Programs are what the images are made of: static programs of the board.
type Programs struct {
	Busybox, Standin []byte
}

const (
	registry = "gcr.io/k8s-staging-cri-tools/"
	e2e      = "registry.k8s.io/e2e-test-images/"
)

// Images returns an image for each one that critest pulls. Two have the same content
// where it expects that they are the same image.
func Images(goarch string, p Programs) ([]imagetar.Image, error) {
	plain, err := imagetar.Busybox("plain:1", goarch, p.Busybox)
	if err != nil {
		return nil, err
	}
	plain.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	extend(&plain, "etc/passwd", "www-data:x:33:33:www-data:/:/bin/false\ndefault-user:x:1000:1000:default:/:/bin/sh\n")
	extend(&plain, "etc/group", "www-data:x:33:\ndefault-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n")
	full, err := withPrograms(plain, p)
	if err != nil {
		return nil, err
	}
	images := []imagetar.Image{
		from(full, e2e+"busybox:1.29-2"),
		server(full, e2e+"httpd:2.4.39-4", "httpd", "80"),
		server(full, e2e+"nginx:1.14-2", "nginx", "80"),
		server(full, registry+"hostnet-nginx-"+goarch+":latest", "nginx", "12003"),
		nonewprivs(plain, e2e+"nonewprivs:1.3", p.Standin),
		from(plain, "registry.k8s.io/pause:3.9", "pause"), // also of k8s.gcr.io, since names lose their registry
		from(plain, registry+"test-image-latest:latest", "latest"),
		from(plain, registry+"test-image-tag:test", "test"),
		from(plain, registry+"test-image-tag:all", "all"),
	}
	for _, n := range []string{"1", "2", "3"} {
		images = append(images, from(plain, registry+"test-image-"+n+":latest", n), from(plain, registry+"test-image-tags:"+n, "tags"))
	}
	for _, x := range [][2]string{
		{"user-uid", "1002"}, {"user-username", "www-data"}, {"user-uid-group", "1003:1004"}, {"user-username-group", "www-data:1004"},
		{"predefined-group", "1000"},
	} {
		im := from(plain, registry+"test-image-"+x[0]+":latest")
		im.User = x[1]
		images = append(images, im)
	}
	return images, nil
}

// from returns the image with another name and further files, which have their own
// names as content.
func from(im imagetar.Image, name string, files ...string) imagetar.Image {
	im.Name, im.Files = name, append([]imagetar.File(nil), im.Files...)
	for _, f := range files {
		im.Files = append(im.Files, imagetar.File{Name: f, Mode: 0o644, Data: []byte(f)})
	}
	return im
}

func extend(im *imagetar.Image, name, text string) {
	for i := range im.Files {
		if im.Files[i].Name == name {
			im.Files[i].Data = append(im.Files[i].Data, text...)
		}
	}
}

// withPrograms returns the image with programs that Debian's BusyBox does not have. Its
// shell executes BusyBox's own programs without a look at the files of these names, so
// that it would not notice a masked /bin/ls: there ls is a file of its own, and the
// BusyBox of the shell has it by another name of the same place in its sorted table.
func withPrograms(im imagetar.Image, p Programs) (imagetar.Image, error) {
	im = from(im, im.Name)
	const ls, renamed = "\x00ls\x00lsmod\x00", "\x00lr\x00lsmod\x00"
	if bytes.Count(p.Busybox, []byte(ls)) != 1 {
		return im, errors.New("busybox program without ls before lsmod in its table of applets")
	}
	for i := range im.Files {
		switch f := &im.Files[i]; f.Name {
		case "bin/busybox":
			f.Data = bytes.Replace(p.Busybox, []byte(ls), []byte(renamed), 1)
		case "bin/ls":
			*f = imagetar.File{Name: f.Name, Mode: 0o755, Data: p.Busybox}
		}
	}
	im.Files = append(im.Files, imagetar.File{Name: "usr/bin/standin", Mode: 0o755, Data: p.Standin})
	for _, name := range []string{"ipcs", "pgrep"} {
		im.Files = append(im.Files, imagetar.File{Name: "usr/bin/" + name, Link: "standin"})
	}
	return im, nil
}

// server is an image of a server on a port. Tests find nginx by the words "master
// process" in its command line.
func server(im imagetar.Image, name, program, port string) imagetar.Image {
	im = from(im, name)
	im.Entrypoint, im.Cmd = []string{"/usr/sbin/" + program, port, "master process"}, nil
	im.Files = append(im.Files, imagetar.File{Name: fmt.Sprint("usr/sbin/", program), Link: "../bin/standin"})
	return im
}

// nonewprivs is an image whose program prints its effective user, and is set-UID.
func nonewprivs(im imagetar.Image, name string, standin []byte) imagetar.Image {
	im = from(im, name)
	im.Cmd = []string{"nnp"}
	im.Files = append(im.Files, imagetar.File{Name: "usr/local/bin/nnp", Mode: 0o755 | fs.ModeSetuid | fs.ModeSetgid, Data: standin})
	return im
}
