package board

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// CommandLineFiles are where Raspberry Pi OS mounts cmdline.txt of the boot partition,
// relative to the root. The newer place is first.
var CommandLineFiles = []string{"boot/firmware/cmdline.txt", "boot/cmdline.txt"}

// maxCommandLine is the maximum number of bytes of cmdline.txt. The kernel accepts 2048
// bytes on arm64 and 1024 on arm (COMMAND_LINE_SIZE), the firmware's own part included.
const maxCommandLine = 4096

// AddArguments adds arguments to the kernel command line in text, the content of a
// Raspberry Pi's cmdline.txt, unless it has them. It removes memory from each
// cgroup_disable, which the kernel would prefer to an earlier cgroup_enable. It returns
// an error if text is not one line of printable characters.
//
// The result is at least as long as text, and differs from it only in what is removed,
// which is replaced with spaces, and behind the last argument.
func AddArguments(text []byte, arguments []string) ([]byte, error) {
	switch {
	case len(text) > maxCommandLine:
		return nil, fmt.Errorf("kernel command line has more than %d bytes", maxCommandLine)
	case bytes.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == 0x7f }):
		return nil, errors.New("kernel command line has control characters")
	}
	line := bytes.TrimRight(text, "\r\n\t ")
	switch {
	case len(line) == 0:
		return nil, errors.New("kernel command line is empty")
	case bytes.ContainsAny(line, "\r\n"):
		return nil, errors.New("kernel command line has more than one line, of which the firmware reads the first")
	}
	edited := []byte(removeFromLists(string(line), "cgroup_disable", "memory"))
	has := strings.Fields(string(edited))
	for _, a := range arguments {
		if !slices.Contains(has, a) {
			edited = append(append(edited, ' '), a...)
		}
	}
	end := text[len(line):]
	if len(edited) > len(line) {
		end = []byte("\n")
	}
	edited = append(edited, end...)
	for len(edited) < len(text) {
		edited = append(edited, '\n')
	}
	return edited, nil
}

// removeFromLists removes value from the comma-separated list of each argument key, and
// pads what is left of the argument with spaces to its length.
func removeFromLists(line, key, value string) string {
	var b strings.Builder
	for rest := line; rest != ""; {
		n := strings.IndexAny(rest, " \t")
		switch n {
		case -1:
			n = len(rest)
		case 0:
			n = 1 // a separator
		}
		word := rest[:n]
		rest = rest[n:]
		if list, found := strings.CutPrefix(word, key+"="); found {
			left := slices.DeleteFunc(strings.Split(list, ","), func(v string) bool { return v == value })
			kept := ""
			if len(left) > 0 {
				kept = key + "=" + strings.Join(left, ",")
			}
			word = kept + strings.Repeat(" ", len(word)-len(kept))
		}
		b.WriteString(word)
	}
	return b.String()
}

// AddArgumentsToFile is AddArguments for the file name below root. It reports whether it
// changed the file. It returns an error that wraps fs.ErrNotExist if there is none.
//
// It writes in place: the FAT file system of the boot partition cannot replace a file
// atomically. After a power cut the line has the arguments, or a part of them, or none,
// and is otherwise as it was.
func AddArgumentsToFile(root *os.Root, name string, arguments []string) (changed bool, err error) {
	f, err := root.OpenFile(name, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return false, fmt.Errorf("open kernel command line: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return false, errors.Join(fmt.Errorf("open kernel command line: /%s is no regular file", name), err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxCommandLine+1))
	if err != nil {
		return false, fmt.Errorf("read kernel command line: %w", err)
	}
	edited, err := AddArguments(text, arguments)
	if err != nil {
		return false, fmt.Errorf("edit /%s: %w", name, err)
	}
	if bytes.Equal(edited, text) {
		return false, nil
	}
	if _, err := f.WriteAt(edited, 0); err != nil {
		return false, fmt.Errorf("write kernel command line: %w", err)
	}
	if err := f.Sync(); err != nil {
		return false, fmt.Errorf("write kernel command line: %w", err)
	}
	return true, nil
}
