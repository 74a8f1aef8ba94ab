package provision

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// marker has the SHA-256 and the size of the file that was applied last, and whether it was
// overwritten.
const marker = "var/lib/tinylet/provisioned"

// States of the marker.
const (
	toWipe = "applied"
	wiped  = "overwritten"
)

// consumed begins a file whose secrets were overwritten.
const consumed = "# tinylet has applied this file and overwritten it.\n"

// Result is what Apply did.
type Result uint8

// The results of Apply.
const (
	None    Result = iota // there is no file, or it was consumed before
	Applied               // the file was applied, and overwritten
	Wiped                 // the file had been applied before, and was overwritten now
)

// Apply applies the provisioning file name below boot to the file system below root, and
// overwrites it. A file that cannot be parsed changes nothing, and stays as it is. If a
// file could be applied and not overwritten, as on a boot partition that is mounted
// read-only, Apply returns Applied and an error, and overwrites it at the next boot.
func Apply(root, boot *os.Root, name string) (Result, error) {
	f, err := boot.OpenFile(name, os.O_RDONLY, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return None, nil
	case err != nil:
		return None, fmt.Errorf("open provisioning file: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return None, fmt.Errorf("read provisioning file: %w", err)
	}
	last := readMarker(root)
	id := fmt.Sprintf("%x", sha256.Sum256(text))
	begun := bytes.HasPrefix(text, []byte(consumed)) // it is overwritten from its beginning
	switch {
	case last.state == toWipe && (begun || last.id == id):
		return Wiped, finish(root, boot, name, last)
	case begun:
		return None, nil
	}
	c, err := Parse(text)
	if err != nil {
		return None, err
	}
	if err := c.supported(root); err != nil {
		return None, err
	}
	files, err := c.Files()
	if err != nil {
		return None, err
	}
	done := mark{id: id, size: len(text), state: toWipe}
	for _, file := range append(files, done.file()) {
		if err := write(root, file); err != nil {
			return None, fmt.Errorf("write /%s: %w", file.Path, err)
		}
	}
	return Applied, finish(root, boot, name, done)
}

// supported returns an error if the image lacks what the configuration needs.
func (c *Config) supported(root *os.Root) error {
	if c.TimeZone != "" {
		if _, err := root.Stat(path.Join("usr/share/zoneinfo", c.TimeZone)); err != nil {
			return fmt.Errorf("timeZone: this image has no time zone %s", c.TimeZone)
		}
	}
	if c.Network != nil && c.Network.WiFi != nil {
		if _, err := root.Stat(supplicantProgram); err != nil {
			return errors.New("network.wifi: this image has no wpa_supplicant, and the board no Wi-Fi with it")
		}
	}
	return nil
}

// mark is the content of the marker.
type mark struct {
	id    string
	size  int
	state string
}

func (m mark) file() File {
	return File{marker, 0o600, fmt.Appendf(nil, "%s %d %s\n", m.id, m.size, m.state)}
}

// readMarker returns the zero mark if there is none.
func readMarker(root *os.Root) (m mark) {
	text, err := root.ReadFile(marker)
	if err != nil {
		return mark{}
	}
	if _, err := fmt.Sscanf(string(text), "%64s %d %11s", &m.id, &m.size, &m.state); err != nil {
		return mark{}
	}
	return m
}

// finish overwrites the file that was applied, and notes it.
func finish(root, boot *os.Root, name string, m mark) error {
	if err := wipe(boot, name, m.size); err != nil {
		return err
	}
	m.state = wiped
	if err := write(root, m.file()); err != nil {
		return fmt.Errorf("write /%s: %w", marker, err)
	}
	return nil
}

// write replaces a file, and syncs it and its directory. The marker comes last, and each
// file before it is complete on the disk then.
func write(root *os.Root, file File) error {
	dir := path.Dir(file.Path)
	if err := root.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	fresh := file.Path + ".new"
	if err := root.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, file.Mode&0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(file.Data)
	if err == nil {
		err = f.Chmod(file.Mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(fresh, file.Path)
	}
	if err != nil {
		return errors.Join(err, root.Remove(fresh))
	}
	d, err := root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// wipe overwrites the size bytes of the file in place, so that its clusters on the FAT file
// system have no secret. What the card's controller keeps of them cannot be overwritten.
func wipe(boot *os.Root, name string, size int) error {
	f, err := boot.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("overwrite provisioning file: %w", err)
	}
	// The beginning is within one sector, and comes first: after a power cut it is there, or
	// the file is as it was.
	text := []byte(consumed + strings.Repeat("\n", max(size-len(consumed), 0)))
	for _, part := range [][2]int{{0, len(consumed)}, {len(consumed), len(text)}} {
		if _, err = f.WriteAt(text[part[0]:part[1]], int64(part[0])); err == nil {
			err = f.Sync()
		}
		if err != nil {
			break
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("overwrite provisioning file: %w", err)
	}
	return nil
}

// problemDir has a file for each part of the board's setup that failed since the boot, with a
// line for each problem. The init scripts write some of them.
const problemDir = "run/tinylet/problems"

// problemFile has the error of the last Apply.
const problemFile = problemDir + "/provisioning"

// Limits of what is read of problemDir.
const (
	maxProblem  = 4 << 10 // bytes of a file
	maxProblems = 16      // files
)

// Record notes the error of an Apply for Problems, or that there was none.
func Record(root *os.Root, failed error) error {
	err := root.Remove(problemFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record provisioning error: %w", err)
	}
	if failed == nil {
		return nil
	}
	text := "correct the provisioning file and reboot: " + strings.ReplaceAll(failed.Error(), "\n", "; ")
	if err := write(root, File{problemFile, 0o600, []byte(text[:min(len(text), maxProblem)])}); err != nil {
		return fmt.Errorf("record provisioning error: %w", err)
	}
	return nil
}

// Problems returns what failed in the setup of the board since the boot, a line each.
func Problems(root string) (problems []string) {
	dir, err := os.OpenRoot(path.Join(root, problemDir))
	if err != nil {
		return nil
	}
	defer dir.Close()
	list, err := dir.Open(".")
	if err != nil {
		return nil
	}
	defer list.Close()
	names, _ := list.Readdirnames(maxProblems) // an error comes without names
	slices.Sort(names)
	for _, name := range names {
		problems = append(problems, readLines(dir, name)...)
	}
	return problems
}

// readLines returns the lines of a file that are not empty.
func readLines(dir *os.Root, name string) (lines []string) {
	f, err := dir.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxProblem))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 0 {
			lines = append(lines, strings.Join(words, " "))
		}
	}
	return lines
}
