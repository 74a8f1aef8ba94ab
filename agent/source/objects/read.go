package objects

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/store/filewatch"
)

var (
	errUnchanged = errors.New("unchanged")
	errSkipped   = errors.New("is a directory")
	errIrregular = errors.New("not a regular file")
	errUnsettled = errors.New("being written")
)

// read returns the whole content of a file that changed and is settled. It
// rejects a symbolic link out of the directory. Opening never blocks, whatever
// the file is.
func (f *Folder) read(folder *os.Root, name string, e *file) (filewatch.Signature, []byte, error) {
	info, err := folder.Stat(name)
	switch {
	case err != nil:
		return filewatch.Signature{}, nil, err
	case info.IsDir():
		return filewatch.Signature{}, nil, errSkipped
	case !info.Mode().IsRegular(): // opening it could have side effects
		return filewatch.Signature{}, nil, errIrregular
	}
	file, err := folder.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return filewatch.Signature{}, nil, err
	}
	defer file.Close()
	sig, err := filewatch.StatFile(file)
	if err != nil {
		return sig, nil, err
	}
	age := f.now().Sub(sig.Modified())
	switch {
	case e.done && sig == e.sig:
		return sig, nil, errUnchanged
	case !sig.IsRegular():
		return sig, nil, errIrregular
	case sig.Size > maxFile:
		return sig, nil, fmt.Errorf("larger than %d bytes", maxFile)
	case age >= 0 && age < settleTime:
		return sig, nil, errUnsettled
	}
	data, err := readWhole(file, sig)
	return sig, data, err
}

// readWhole returns the content that the signature describes, or errUnsettled.
func readWhole(file *os.File, sig filewatch.Signature) ([]byte, error) {
	data := make([]byte, sig.Size)
	n, err := io.ReadFull(file, data)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	after, err := filewatch.StatFile(file)
	if err != nil {
		return nil, err
	}
	if after != sig || uint64(n) != sig.Size {
		return nil, errUnsettled
	}
	return data, nil
}
