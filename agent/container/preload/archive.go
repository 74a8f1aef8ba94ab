package preload

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/containerd/containerd/v2/pkg/archive/compression"
)

// Limits of an archive, in bytes except maxEntries. They are above the needs
// of any real image, and low enough for a small board.
const (
	maxEntries  = 20_000
	maxName     = 4096     // of an entry's name
	maxJSON     = 4 << 20  // of one manifest, index or config
	maxAllJSON  = 8 << 20  // of all of them
	maxNames    = 4 << 20  // of all names
	smallJSON   = 64 << 10 // of a JSON file that the first pass keeps in memory
	maxUnpacked = 32 << 30 // of a compressed archive, uncompressed
)

// errInvalidArchive means that the archive itself is invalid. A retry cannot succeed until
// the file is replaced.
var errInvalidArchive = errors.New("invalid archive")

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errInvalidArchive, fmt.Errorf(format, args...))
}

// archive is a tar file, plain or compressed with gzip. It is read in several
// passes, because the index may be at its end.
//
// containerd's own reader (core/images/archive, ImportIndex) is not used. It
// writes every entry of the tar to the content store before it knows what the
// entries are, including those of other platforms and those that belong to no
// image. It writes all of them again after a power cut. It does not limit their
// number, their names and the JSON. The preloader needs the names of an archive's
// images before it imports anything, and must distinguish errors that a retry does
// not resolve.
type archive struct {
	file   io.ReaderAt
	size   int64
	gzip   bool
	layout contents
}

// entry is a regular file or a link in the archive. Its name is only compared, never
// used as a path.
type entry struct {
	serial int // the entry's position in the archive, counting all headers
	name   string
	size   int64
	offset int64   // of its content, in a plain archive; 0 for a link
	head   [8]byte // its first bytes
	link   string  // the name of the entry that has the content
}

// contents holds the entries of an archive, and the content of the JSON files
// that were read.
type contents struct {
	entries map[string]*entry
	json    map[string][]byte
	held    int64 // bytes in json
}

// open detects the compression of an archive from its first bytes. It rejects an empty
// file and zstd.
func open(file io.ReaderAt, size int64) (*archive, error) {
	a := &archive{file: file, size: size}
	var head [8]byte
	n, err := file.ReadAt(head[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read archive: %w", err)
	}
	if n == 0 {
		return nil, invalidf("file is empty")
	}
	switch compression.DetectCompression(head[:n]) {
	case compression.Zstd:
		return nil, invalidf("zstd compression is not supported: use gzip or none")
	case compression.Gzip:
		a.gzip = true
	case compression.Uncompressed, compression.Unknown:
	}
	return a, nil
}

// walk visits the regular files and links in order. The reader is valid until visit
// returns. For a regular file of a plain archive it is an io.Seeker.
func (a *archive) walk(ctx context.Context, visit func(*entry, io.Reader) error) error {
	section := io.NewSectionReader(a.file, 0, a.size)
	var from io.Reader = &interruptible{ended: ctx.Err, section: section}
	if a.gzip {
		z, err := gzip.NewReader(bufio.NewReaderSize(from, 32<<10))
		if err != nil {
			return a.readError(ctx, err)
		}
		defer z.Close()
		from = &limited{r: z, left: maxUnpacked}
	}
	files := tar.NewReader(from)
	for serial := 0; ; serial++ {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return a.readError(ctx, err)
		}
		if serial == maxEntries {
			return invalidf("more than %d entries", maxEntries)
		}
		e, ok := entryOf(header)
		if !ok {
			continue
		}
		e.serial = serial
		var content io.Reader = files
		if !a.gzip && e.link == "" {
			if e.offset, err = section.Seek(0, io.SeekCurrent); err != nil {
				return fmt.Errorf("read archive: %w", err)
			}
			content = a.section(ctx, e)
		}
		if err := visit(e, content); err != nil {
			return err
		}
	}
}

// section returns a reader of an entry of a plain archive.
func (a *archive) section(ctx context.Context, e *entry) io.ReadSeeker {
	return &interruptible{ended: ctx.Err, section: io.NewSectionReader(a.file, e.offset, e.size)}
}

// readError classifies a read error: the error of ctx if it ended, a plain error
// if the disk failed, and else errInvalidArchive.
func (a *archive) readError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if disk := new(fs.PathError); errors.As(err, &disk) {
		return fmt.Errorf("read archive: %w", err)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return invalidf("truncated: %w", io.ErrUnexpectedEOF)
	}
	return invalidf("read as tar: %w", err)
}

// entryOf returns the entry of a header if it is a regular file or a link
// whose path stays inside the archive.
func entryOf(h *tar.Header) (*entry, bool) {
	if len(h.Name) > maxName || len(h.Linkname) > maxName || h.Size < 0 {
		return nil, false
	}
	e := &entry{name: path.Clean(h.Name), size: h.Size}
	switch h.Typeflag {
	case tar.TypeReg:
	case tar.TypeLink:
		e.link = path.Clean(h.Linkname)
	case tar.TypeSymlink: // docker save writes repeated layers so
		e.link = path.Join(path.Dir(e.name), h.Linkname)
	default:
		return nil, false
	}
	return e, !strings.HasPrefix(e.name, "/") && !strings.HasPrefix(e.name, "../")
}

// scan is the first pass. It collects the entries and reads files of at most smallJSON
// bytes that begin like JSON. Of several entries with the same name, the last one counts.
func (a *archive) scan(ctx context.Context) error {
	a.layout = contents{entries: make(map[string]*entry), json: make(map[string][]byte)}
	names := 0
	return a.walk(ctx, func(e *entry, r io.Reader) error {
		if names += len(e.name) + len(e.link); names > maxNames {
			return invalidf("entry names take more than %d bytes", maxNames)
		}
		a.layout.entries[e.name] = e
		a.layout.held -= int64(len(a.layout.json[e.name])) // of an earlier one
		delete(a.layout.json, e.name)
		if e.link != "" {
			return nil
		}
		n, err := io.ReadFull(r, e.head[:min(int64(len(e.head)), e.size)])
		if err != nil {
			return a.readError(ctx, err)
		}
		if e.size == 0 || e.head[0] != '{' && e.head[0] != '[' || e.size > smallJSON || a.layout.held+e.size > maxAllJSON {
			return nil
		}
		return a.loadEntry(ctx, e, io.MultiReader(bytes.NewReader(e.head[:n]), r))
	})
}

// loadEntry reads an entry into memory. The caller has checked its size.
func (a *archive) loadEntry(ctx context.Context, e *entry, r io.Reader) error {
	data := make([]byte, e.size)
	if _, err := io.ReadFull(r, data); err != nil {
		return a.readError(ctx, err)
	}
	a.layout.held += e.size
	a.layout.json[e.name] = data
	return nil
}

// find returns the entry with the given name, after following up to three
// links, or nil.
func (a *archive) find(name string) *entry {
	e := a.layout.entries[path.Clean(name)]
	for range 4 {
		if e == nil || e.link == "" {
			return e
		}
		e = a.layout.entries[e.link]
	}
	return nil
}

// readJSON returns the content of a JSON entry. It reads the entry now if it
// was too large for the first pass.
func (a *archive) readJSON(ctx context.Context, name string) ([]byte, error) {
	e := a.find(name)
	if e == nil {
		return nil, invalidf("%q is missing", name)
	}
	if data, ok := a.layout.json[e.name]; ok {
		return data, nil
	}
	if e.size > maxJSON || a.layout.held+e.size > maxAllJSON {
		return nil, invalidf("%q is too large: %d bytes", name, e.size)
	}
	var err error
	if a.gzip {
		err = a.each(ctx, map[int]bool{e.serial: true}, func(now *entry, r io.Reader) error {
			if now.name != e.name || now.size != e.size {
				return errChanged // the file was overwritten since the first pass
			}
			return a.loadEntry(ctx, now, r)
		})
	} else {
		err = a.loadEntry(ctx, e, a.section(ctx, e))
	}
	return a.layout.json[e.name], err
}

// each visits the entries with these serials, in the order of the archive. It makes one
// pass, and stops after the last of them.
func (a *archive) each(ctx context.Context, serials map[int]bool, visit func(*entry, io.Reader) error) error {
	left := len(serials)
	if left == 0 {
		return nil
	}
	err := a.walk(ctx, func(e *entry, r io.Reader) error {
		if !serials[e.serial] {
			return nil
		}
		if err := visit(e, r); err != nil {
			return err
		}
		if left--; left == 0 {
			return fs.SkipAll
		}
		return nil
	})
	if errors.Is(err, fs.SkipAll) {
		return nil
	}
	return err
}

// interruptible is a reader that fails once ended, which is a context's Err, returns an
// error.
type interruptible struct {
	ended   func() error
	section *io.SectionReader
}

func (i *interruptible) Read(p []byte) (int, error) {
	if err := i.ended(); err != nil {
		return 0, err
	}
	return i.section.Read(p)
}

func (i *interruptible) Seek(offset int64, whence int) (int64, error) {
	return i.section.Seek(offset, whence)
}

// limited is a reader that fails when a compressed archive expands to more
// than maxUnpacked bytes.
type limited struct {
	r    io.Reader
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, fmt.Errorf("uncompressed size exceeds %d bytes", int64(maxUnpacked))
	}
	return n, err
}
