package identity

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// store holds one kind of certificate on the disk, in the layout of client-go's
// util/certificate/certificate_store.go: <prefix>-current.pem is a symbolic link to
// <prefix>-<time>.pem, which holds certificate and key.
type store struct {
	dir    string // absolute, as symbolic links need it
	prefix string
	disk   disk
}

// current returns the path of the current certificate.
func (s *store) current() string { return filepath.Join(s.dir, s.prefix+"-current.pem") }

// updated returns the path of the temporary link that is renamed to current.
func (s *store) updated() string { return filepath.Join(s.dir, s.prefix+"-updated.pem") }

// keyFile returns the path of the key whose certificate is pending.
func (s *store) keyFile() string { return filepath.Join(s.dir, s.prefix+".key.tmp") }

// load reads the current certificate. The error wraps fs.ErrNotExist if there is
// none. If a stock kubelet crashed between the two steps of replacing the link,
// load completes the replacement.
func (s *store) load() (*tls.Certificate, error) {
	if _, err := os.Lstat(s.current()); errors.Is(err, fs.ErrNotExist) {
		if at, err := os.Lstat(s.updated()); err == nil && at.Mode()&fs.ModeSymlink != 0 {
			if err := s.disk.rename(s.updated(), s.current()); err != nil {
				return nil, fmt.Errorf("recover certificate %s: %w", s.current(), err)
			}
		}
	}
	data, err := readFile(s.current())
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(data, data)
	if err != nil {
		return nil, fmt.Errorf("load certificate %s: %w", s.current(), err)
	}
	return &pair, nil
}

// save stores a certificate and makes it the current one.
func (s *store) save(pair *tls.Certificate, now time.Time) error {
	var data bytes.Buffer
	for _, der := range pair.Certificate {
		if err := pem.Encode(&data, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
			return fmt.Errorf("encode certificate: %w", err)
		}
	}
	key, err := encodeKey(pair.PrivateKey)
	if err != nil {
		return err
	}
	data.Write(key)
	dated := filepath.Join(s.dir, s.prefix+"-"+now.Format("2006-01-02-15-04-05")+".pem")
	if err := s.disk.replaceBy(filepath.Join(s.dir, s.prefix+".pem.tmp"), dated, data.Bytes(), 0o600); err != nil {
		return fmt.Errorf("save certificate: %w", err)
	}
	if err := s.disk.link(dated, s.current(), s.updated()); err != nil {
		return fmt.Errorf("save certificate: %w", err)
	}
	return nil
}
