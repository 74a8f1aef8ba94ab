package imagetar

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// Busybox returns the image of a static busybox program with a link for each
// of its applets. name carries the tag.
func Busybox(name, goarch string, program []byte) (Image, error) {
	applets, err := Applets(program)
	if err != nil {
		return Image{}, err
	}
	files := []File{
		{Name: "bin/busybox", Mode: 0o755, Data: program},
		{Name: "etc/passwd", Mode: 0o644, Data: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
		{Name: "etc/group", Mode: 0o644, Data: []byte("root:x:0:\nnogroup:x:65534:\n")},
		{Name: "root/", Mode: 0o700},
		{Name: "tmp/", Mode: 0o777 | fs.ModeSticky},
		{Name: "var/"},
	}
	files[len(files)-1].Mode = 0o755
	for _, n := range applets {
		if n != "busybox" {
			files = append(files, File{Name: "bin/" + n, Link: "busybox"})
		}
	}
	return Image{
		Name: name, GOARCH: goarch, Cmd: []string{"sh"},
		Env: []string{"PATH=/bin"}, Files: files,
	}, nil
}

// Applets lists the applet names in a busybox program. They lie in its data as
// one sorted sequence of NUL-terminated strings that starts with "[" and "[[".
func Applets(program []byte) ([]string, error) {
	i := bytes.Index(program, []byte("[\x00[[\x00"))
	if i < 0 {
		return nil, errors.New("busybox program without a table of applets")
	}
	var names []string
	for rest := program[i:]; ; {
		name, next, ok := bytes.Cut(rest, []byte{0})
		if !ok || !isApplet(name) {
			break
		}
		if len(names) > 0 && string(name) <= names[len(names)-1] {
			break
		}
		names, rest = append(names, string(name)), next
	}
	if !slices.Contains(names, "sh") {
		return nil, fmt.Errorf("busybox program with %d applets, none of them sh", len(names))
	}
	return names, nil
}

// isApplet reports whether a string can be the name of an applet.
func isApplet(name []byte) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789_-["
	return len(name) > 0 && len(name) <= 32 && len(bytes.TrimLeft(name, letters)) == 0
}
