package objects

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

var (
	errUnchanged = errors.New("unchanged")
	errSkipped   = errors.New("is a directory")
	errIrregular = errors.New("not a regular file")
	errUnsettled = errors.New("being written")
)

// signature changes whenever a file's content changes, as far as stat shows it.
type signature struct {
	major, minor uint32
	inode, size  uint64
	mode         uint16
	mtime, ctime unix.StatxTimestamp
}

func (s *signature) modified() time.Time { return time.Unix(s.mtime.Sec, int64(s.mtime.Nsec)) }

func signatureOf(f *os.File) (signature, error) {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &st); err != nil {
		return signature{}, err
	}
	return signature{
		major: st.Dev_major, minor: st.Dev_minor, inode: st.Ino, size: st.Size,
		mode: st.Mode, mtime: st.Mtime, ctime: st.Ctime,
	}, nil
}

// read returns the whole content of a file that changed and is settled. It
// rejects a symbolic link out of the directory. Opening never blocks, whatever
// the file is.
func (f *Folder) read(folder *os.Root, name string, e *file) (signature, []byte, error) {
	info, err := folder.Stat(name)
	switch {
	case err != nil:
		return signature{}, nil, err
	case info.IsDir():
		return signature{}, nil, errSkipped
	case !info.Mode().IsRegular(): // opening it could have side effects
		return signature{}, nil, errIrregular
	}
	file, err := folder.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return signature{}, nil, err
	}
	defer file.Close()
	sig, err := signatureOf(file)
	if err != nil {
		return sig, nil, err
	}
	age := f.now().Sub(sig.modified())
	switch {
	case e.done && sig == e.sig:
		return sig, nil, errUnchanged
	case sig.mode&unix.S_IFMT != unix.S_IFREG:
		return sig, nil, errIrregular
	case sig.size > maxFile:
		return sig, nil, fmt.Errorf("larger than %d bytes", maxFile)
	case age >= 0 && age < settleTime:
		return sig, nil, errUnsettled
	}
	data, err := readWhole(file, sig)
	return sig, data, err
}

// readWhole returns the content that the signature describes, or errUnsettled.
func readWhole(file *os.File, sig signature) ([]byte, error) {
	data := make([]byte, sig.size)
	n, err := io.ReadFull(file, data)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	after, err := signatureOf(file)
	if err != nil {
		return nil, err
	}
	if after != sig || uint64(n) != sig.size {
		return nil, errUnsettled
	}
	return data, nil
}
