package arch

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"unicode"

	gocmp "github.com/google/go-cmp/cmp"
)

// root is the module's root directory.
const root = "../.."

// replacements maps each word that identifiers and log messages must not contain to
// the term that replaces it.
var replacements = map[string]string{
	"tell":      "report, notify, log",
	"tells":     "reports, notifies, logs",
	"told":      "reported, notified, known",
	"hear":      "receive, observe, subscribe",
	"hears":     "receives, observes, subscribes",
	"heard":     "received, observed",
	"look":      "reconcile, check, poll, read, trigger",
	"looks":     "reconciles, checks, polls, reads, triggers",
	"looked":    "reconciled, checked, polled, read",
	"glance":    "timeout",
	"patience":  "timeout",
	"stray":     "unreferenced",
	"stranger":  "unauthenticated",
	"strangers": "unauthenticated",
	"door":      "listener, connection limiter",
	"doors":     "listeners, connection limiter",
	"mood":      "severity",
	"leftover":  "orphan",
	"leftovers": "orphans",
	"linger":    "retention",
	"residue":   "unpersisted fields",
	"figures":   "stats",
	"wanted":    "desired",
	"anew":      "again",
}

// phrases maps each phrase that comments must not contain to the one that replaces it.
var phrases = map[string]string{
	"says whether":  "reports whether",
	"says that":     "reports that, means that",
	"tells whether": "reports whether",
}

// exception is a word in a file. The path is relative to the root.
type exception struct {
	file, word string
}

// exceptions maps the accepted words and phrases to the reason.
var exceptions = map[exception]string{
	{"agent/podworker/handler/action.go", "linger"}: "SO_LINGER is the name of a socket option",
}

// maxMessage is the maximum number of words of a log message.
const maxMessage = 8

// messageArgument maps the logging methods of slog.Logger and of package slog to the
// index of the message in their arguments.
var messageArgument = map[string]int{
	"Debug": 0, "DebugContext": 1,
	"Info": 0, "InfoContext": 1,
	"Warn": 0, "WarnContext": 1,
	"Error": 0, "ErrorContext": 1,
	"Log": 2, "LogAttrs": 2,
}

// names are names with only one upper-case letter that log messages may begin with.
var names = []string{"Node", "Lease", "Kubernetes", "Secret", "Service"}

// finding is a violation of the vocabulary.
type finding struct {
	file   string // relative to the root
	line   int
	word   string // the word or phrase; "" for other rules
	reason string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.reason) }

// TestWords checks the vocabulary of all non-test Go files of the module:
// identifiers, log messages and comments use the terms of Kubernetes and of the
// kernel. It parses the files without type checking.
func TestWords(t *testing.T) {
	fset := token.NewFileSet()
	files := map[string]*ast.File{}
	helpers := map[string]bool{} // directories of packages that import testing
	for _, name := range goFiles(t) {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		file, err := parse(fset, name, text)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = file
		if importsTesting(file) {
			helpers[path.Dir(name)] = true
		}
	}
	var found []finding
	used := map[exception]bool{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, f := range check(fset, name, files[name], !helpers[path.Dir(name)]) {
			key := exception{f.file, f.word}
			if _, ok := exceptions[key]; ok {
				used[key] = true
				continue
			}
			found = append(found, f)
		}
	}
	counts := map[string]int{}
	for _, f := range found {
		t.Error(f)
		counts[path.Dir(f.file)]++
	}
	for _, dir := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%4d %s", counts[dir], dir)
	}
	for key := range exceptions {
		if !used[key] {
			t.Errorf("exceptions: %s does not contain %q any more: remove the entry", key.file, key.word)
		}
	}
}

// goFiles returns the non-test Go files of the module, relative to the root, sorted.
// It skips nested modules, and directories that the go command ignores.
func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return err
		case name == ".":
		case d.IsDir() && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "vendor"):
			return fs.SkipDir
		case d.IsDir():
			if _, err := os.Stat(filepath.Join(root, name, "go.mod")); err == nil {
				return fs.SkipDir
			}
		case strings.HasSuffix(base, ".go") && !strings.HasSuffix(base, "_test.go"):
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 100 {
		t.Fatalf("%d Go files under %s: it is not the module's root", len(files), root)
	}
	return files
}

func parse(fset *token.FileSet, name string, text []byte) (*ast.File, error) {
	return parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
}

func importsTesting(file *ast.File) bool {
	return slices.ContainsFunc(file.Imports, func(spec *ast.ImportSpec) bool { return spec.Path.Value == `"testing"` })
}

// check returns the findings of one file, in the order of their lines. logs is false in
// test helpers, where Log and Error are methods of testing.TB and write no log messages.
func check(fset *token.FileSet, name string, file *ast.File, logs bool) []finding {
	c := checker{name: name, fset: fset, logs: logs}
	ast.Inspect(file, c.node)
	for _, group := range file.Comments {
		c.comment(group)
	}
	slices.SortStableFunc(c.found, func(a, b finding) int { return cmp.Compare(a.line, b.line) })
	return c.found
}

// checker collects the findings of one file.
type checker struct {
	name  string
	fset  *token.FileSet
	logs  bool
	found []finding
}

func (c *checker) add(pos token.Pos, word, format string, args ...any) {
	c.found = append(c.found, finding{c.name, c.fset.Position(pos).Line, word, fmt.Sprintf(format, args...)})
}

// node checks the identifiers that n declares, and its log message if it is a call.
// It checks only declarations, because other modules determine their own names.
func (c *checker) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.File:
		c.identifiers(n.Name)
	case *ast.ImportSpec:
		c.identifiers(n.Name)
	case *ast.FuncDecl:
		c.identifiers(n.Name)
	case *ast.TypeSpec:
		c.identifiers(n.Name)
	case *ast.ValueSpec:
		c.identifiers(n.Names...)
	case *ast.Field: // of a struct, an interface, parameters, results or type parameters
		c.identifiers(n.Names...)
	case *ast.LabeledStmt:
		c.identifiers(n.Label)
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			c.expressions(n.Lhs...)
		}
	case *ast.RangeStmt:
		if n.Tok == token.DEFINE {
			c.expressions(n.Key, n.Value)
		}
	case *ast.CallExpr:
		c.call(n)
	}
	return true
}

func (c *checker) expressions(all ...ast.Expr) {
	for _, e := range all {
		if id, ok := e.(*ast.Ident); ok {
			c.identifiers(id)
		}
	}
}

func (c *checker) identifiers(all ...*ast.Ident) {
	for _, id := range all {
		if id == nil {
			continue
		}
		for _, word := range split(id.Name) {
			if better, ok := replacements[word]; ok {
				c.add(id.Pos(), word, "identifier %s contains %q: write %s", id.Name, word, better)
			}
		}
	}
}

// call checks the message of a logging call if it is a string literal.
func (c *checker) call(call *ast.CallExpr) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !c.logs {
		return
	}
	i, ok := messageArgument[method.Sel.Name]
	if !ok || i >= len(call.Args) {
		return
	}
	literal, ok := call.Args[i].(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return
	}
	text, err := strconv.Unquote(literal.Value)
	if err != nil {
		return // the parser has checked it
	}
	c.message(literal.Pos(), text)
}

func (c *checker) message(pos token.Pos, text string) {
	words := strings.Fields(text)
	if len(words) > maxMessage {
		c.add(pos, "", "log message %q has %d words: write at most %d, and put facts into attributes", text, len(words), maxMessage)
	}
	if len(words) == 0 {
		c.add(pos, "", "log message is empty")
		return
	}
	if strings.HasSuffix(text, ".") {
		c.add(pos, "", "log message %q ends with a period", text)
	}
	if startsUpper(words[0]) && !isName(words[0]) {
		c.add(pos, "", "log message %q begins with an upper-case letter", text)
	}
	for _, word := range words {
		word = strings.ToLower(strings.TrimFunc(word, func(r rune) bool { return !unicode.IsLetter(r) }))
		if better, ok := replacements[word]; ok {
			c.add(pos, word, "log message %q contains %q: write %s", text, word, better)
		}
	}
}

// comment checks the phrases of a comment, which may continue on the next line.
func (c *checker) comment(group *ast.CommentGroup) {
	var text strings.Builder
	var starts []int    // offsets in text
	var pos []token.Pos // of the line at the offset
	for _, comment := range group.List {
		at := comment.Pos()
		for line := range strings.Lines(comment.Text) {
			starts, pos = append(starts, text.Len()), append(pos, at)
			at += token.Pos(len(line))
			line = strings.TrimSuffix(strings.TrimLeft(strings.TrimSpace(line), "/*"), "*/")
			for _, word := range strings.Fields(line) {
				text.WriteString(strings.ToLower(word) + " ")
			}
		}
	}
	for _, phrase := range slices.Sorted(maps.Keys(phrases)) {
		rest, offset := text.String(), 0
		for {
			i := strings.Index(rest, phrase)
			if i < 0 {
				break
			}
			after := sort.Search(len(starts), func(k int) bool { return starts[k] > offset+i })
			c.add(pos[after-1], phrase, "comment contains %q: write %s", phrase, phrases[phrase])
			offset, rest = offset+i+len(phrase), rest[i+len(phrase):]
		}
	}
}

// split returns the words of an identifier in lower case. A word begins at an
// upper-case letter after another character, at the last letter of a sequence of
// upper-case letters before a lower-case one, and after an underscore.
func split(identifier string) []string {
	var words []string
	letters := []rune(identifier)
	start := 0
	end := func(i int) {
		if i > start {
			words = append(words, strings.ToLower(string(letters[start:i])))
		}
		start = i
	}
	for i, r := range letters {
		switch {
		case r == '_' || unicode.IsDigit(r):
			end(i)
			start = i + 1
		case i == 0 || !unicode.IsUpper(r):
		case !unicode.IsUpper(letters[i-1]), i+1 < len(letters) && unicode.IsLower(letters[i+1]):
			end(i)
		}
	}
	end(len(letters))
	return words
}

func startsUpper(word string) bool { return unicode.IsUpper([]rune(word)[0]) }

// isName reports whether a word with an upper-case first letter is an acronym or a
// name: another letter is in upper case, or it is one of names.
func isName(word string) bool {
	return strings.IndexFunc(word[1:], unicode.IsUpper) >= 0 || slices.Contains(names, strings.TrimRight(word, "'s:,"))
}

func TestSplit(t *testing.T) {
	for identifier, want := range map[string][]string{
		"":            nil,
		"_":           nil,
		"told":        {"told"},
		"whoTold":     {"who", "told"},
		"Lookup":      {"lookup"},
		"LookUp":      {"look", "up"},
		"HTTPDoor":    {"http", "door"},
		"doorHTTP":    {"door", "http"},
		"IPv6Figures": {"i", "pv", "figures"},
		"look_2nd":    {"look", "nd"},
	} {
		if diff := gocmp.Diff(want, split(identifier)); diff != "" {
			t.Errorf("split(%q) (-want +got):\n%s", identifier, diff)
		}
	}
}

func TestCheck(t *testing.T) {
	const source = `// Package p says
// whether it works.
package p

import doors "net/http"

// Teller has no listed word, and its method uses one of another module.
type Teller struct {
	hears func(glance int) (told bool)
}

type mood interface{ Tell() }

const (
	strayLimit, ok = 1, 2
)

/*
It says that
it tells whether.
*/
func (s Teller) Run(log Logger, linger int) {
residue:
	for wantedKey := range doors.Look() {
		anew, left := 1, 2
		break residue
	}
	lookups, looker := 1, 2
	log.Info("wanted pod was told")
	log.Warn("Cannot start")
	log.Warn("CNI plugin failed")
	log.Warn("Node is ready.")
	log.ErrorContext(ctx, "one two three four five six seven eight nine")
	log.LogAttrs(ctx, level, "")
	log.Log(ctx, level, "Start", "told")
	log.Info(message, "told")
}
`
	fset := token.NewFileSet()
	file, err := parse(fset, "p.go", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range check(fset, "p.go", file, true) {
		reason, _, _ := strings.Cut(f.reason, ": write")
		got = append(got, fmt.Sprintf("%d: %s", f.line, reason))
	}
	want := []string{
		`1: comment contains "says whether"`,
		`5: identifier doors contains "doors"`,
		`9: identifier hears contains "hears"`,
		`9: identifier glance contains "glance"`,
		`9: identifier told contains "told"`,
		`12: identifier mood contains "mood"`,
		`12: identifier Tell contains "tell"`,
		`15: identifier strayLimit contains "stray"`,
		`19: comment contains "says that"`,
		`20: comment contains "tells whether"`,
		`22: identifier linger contains "linger"`,
		`23: identifier residue contains "residue"`,
		`24: identifier wantedKey contains "wanted"`,
		`25: identifier anew contains "anew"`,
		`29: log message "wanted pod was told" contains "wanted"`,
		`29: log message "wanted pod was told" contains "told"`,
		`30: log message "Cannot start" begins with an upper-case letter`,
		`32: log message "Node is ready." ends with a period`,
		`33: log message "one two three four five six seven eight nine" has 9 words`,
		`34: log message is empty`,
		`35: log message "Start" begins with an upper-case letter`,
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if helper := check(fset, "p.go", file, false); len(helper) != 14 {
		t.Errorf("%d findings without log messages, want 14", len(helper))
	}
	if importsTesting(file) {
		t.Error("the file does not import testing")
	}
}
