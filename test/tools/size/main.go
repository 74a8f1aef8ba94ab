// Command size writes docs/dev/size.md: what the arm64 binary links, by module and by package of
// this module, in bytes, and which of our packages import it. Without -write it prints what differs
// from that file.
package main

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	ledger  = "docs/dev/size.md"
	program = "./cmd/tinylet"
	ours    = "github.com/tinylet/tinylet"
)

func main() {
	write := flag.Bool("write", false, "write "+ledger)
	flag.Parse()
	if err := run(*write, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

func run(write bool, flags []string, out io.Writer) error {
	dir, err := os.MkdirTemp("", "size")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "tinylet")
	if _, err := command("go", slices.Concat([]string{"build"}, flags, []string{"-o", file, program})...); err != nil {
		return err
	}
	packages, err := linked(flags)
	if err != nil {
		return err
	}
	sizes, err := symbols(file, packages)
	if err != nil {
		return err
	}
	stripped := file + ".stripped"
	if _, err := command("go", slices.Concat([]string{"build"}, flags, []string{"-ldflags", "-s -w", "-o", stripped, program})...); err != nil {
		return err
	}
	info, err := os.Stat(stripped)
	if err != nil {
		return err
	}
	rows := account(packages, sizes)
	if write {
		return os.WriteFile(ledger, []byte(document(rows, info.Size())), 0o644)
	}
	return report(out, rows, info.Size())
}

// command runs a command for linux/arm64 and returns its output.
func command(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return text, nil
}

// pkg is a linked package, as go list prints it.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Module     *struct{ Path string }
}

// group returns the row of a package: its module, or itself if it is ours.
func (p *pkg) group() string {
	switch {
	case p.Standard:
		return "standard library"
	case p.Module.Path == ours:
		return strings.TrimPrefix(p.ImportPath, ours+"/")
	}
	return p.Module.Path
}

func linked(flags []string) (map[string]*pkg, error) {
	text, err := command("go", slices.Concat([]string{"list"}, flags, []string{"-deps", "-json=ImportPath,Standard,Imports,Module", program})...)
	if err != nil {
		return nil, err
	}
	all := make(map[string]*pkg)
	for dec := json.NewDecoder(bytes.NewReader(text)); ; {
		p := new(pkg)
		if err := dec.Decode(p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all[p.ImportPath] = p
	}
}

// symbols returns the bytes of code and data of each package.
func symbols(file string, packages map[string]*pkg) (map[string]uint64, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := f.Symbols()
	if err != nil {
		return nil, err
	}
	sizes := make(map[string]uint64)
	for _, s := range all {
		if s.Section != elf.SHN_UNDEF && int(s.Section) < len(f.Sections) && f.Sections[s.Section].Type != elf.SHT_NOBITS {
			sizes[packageOf(s.Name, packages)] += s.Size
		}
	}
	return sizes, nil
}

// packageOf returns the package of a symbol: the longest import path at its begin. Symbols of the
// runtime, such as those of types, have none.
func packageOf(symbol string, packages map[string]*pkg) string {
	for _, prefix := range []string{"type:.eq.", "type:.hash.", "go:itab.*", "go:itab.", "type:*", "type:"} {
		symbol = strings.TrimPrefix(symbol, prefix)
	}
	symbol = strings.ReplaceAll(symbol, "%2e", ".")
	end := strings.LastIndexByte(symbol, '/') + 1
	if i := strings.IndexByte(symbol[end:], '.'); i >= 0 {
		for path := symbol[:end+i]; ; {
			if packages[path] != nil {
				return path
			}
			next := strings.IndexByte(symbol[len(path)+min(1, len(symbol)-len(path)):], '.')
			if next < 0 {
				return ""
			}
			path = symbol[:len(path)+1+next]
		}
	}
	return ""
}

// row is a line of the ledger.
type row struct {
	name  string
	bytes uint64
	ours  bool
	users []string // our packages that import it
}

func account(packages map[string]*pkg, sizes map[string]uint64) []row {
	rows := make(map[string]*row)
	at := func(name string) *row {
		if rows[name] == nil {
			rows[name] = &row{name: name}
		}
		return rows[name]
	}
	for path, size := range sizes {
		if path == "" {
			at("types, strings and tables of the runtime").bytes += size
			continue
		}
		p := packages[path]
		r := at(p.group())
		r.bytes += size
		r.ours = !p.Standard && p.Module.Path == ours
	}
	for _, p := range packages {
		if p.Standard || p.Module.Path != ours {
			continue
		}
		for _, imported := range p.Imports {
			if q := packages[imported]; q != nil && !q.Standard && q.Module.Path != ours {
				if r := at(q.group()); !slices.Contains(r.users, p.group()) {
					r.users = append(r.users, p.group())
				}
			}
		}
	}
	list := make([]row, 0, len(rows))
	for _, r := range rows {
		slices.Sort(r.users)
		list = append(list, *r)
	}
	slices.SortFunc(list, func(a, b row) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), strings.Compare(a.name, b.name)) })
	return list
}

// maxUsers is how many users a row names.
const maxUsers = 4

func document(rows []row, stripped int64) string {
	var text strings.Builder
	fmt.Fprintf(&text, "# What the binary links\n\nWritten by `make size`, for arm64. The binary has %d bytes, stripped; the limit is 30,000,000. Sizes below are of symbols; the rest of the binary is mostly the line tables of these functions.\n", stripped)
	for _, part := range []struct {
		title string
		ours  bool
	}{{"Modules", false}, {"Packages of this module", true}} {
		fmt.Fprintf(&text, "\n## %s\n\n| %s | kB | imported directly by |\n|---|---:|---|\n", part.title, strings.ToLower(strings.Fields(part.title)[0]))
		for _, r := range rows {
			if r.ours != part.ours {
				continue
			}
			users := strings.Join(r.users[:min(len(r.users), maxUsers)], ", ")
			if n := len(r.users) - maxUsers; n > 0 {
				users += fmt.Sprintf(" and %d more", n)
			}
			fmt.Fprintf(&text, "| %s | %d | %s |\n", r.name, (r.bytes+500)/1000, users)
		}
	}
	return text.String()
}

// report prints the rows that differ from the committed ledger.
func report(out io.Writer, rows []row, stripped int64) error {
	text, err := os.ReadFile(ledger)
	if err != nil {
		return err
	}
	before := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			before[strings.TrimSpace(cells[1])] = strings.TrimSpace(cells[2])
		}
	}
	fmt.Fprintf(out, "tinylet arm64, stripped: %.2f MB of 30 MB\n", float64(stripped)/1e6)
	for _, r := range rows {
		kB := fmt.Sprint((r.bytes + 500) / 1000)
		if was := cmp.Or(before[r.name], "0"); was != kB {
			fmt.Fprintf(out, "%s: %s kB, was %s\n", r.name, kB, was)
		}
		delete(before, r.name)
	}
	for _, gone := range slices.Sorted(maps.Keys(before)) {
		if kB := before[gone]; kB != "" && kB[0] >= '1' && kB[0] <= '9' {
			fmt.Fprintf(out, "%s: not linked any more, was %s kB\n", gone, kB)
		}
	}
	return nil
}
