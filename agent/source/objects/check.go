package objects

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
)

// maxData bounds the data of a Secret or ConfigMap in bytes, as in an API
// server (MaxSecretSize in k8s.io/api/core/v1).
const maxData = v1.MaxSecretSize

// identify validates an object's name and sets the namespace "default" on a
// namespaced object without one.
func identify(o metav1.Object, kind string) (Key, error) {
	namespace := o.GetNamespace()
	switch {
	case clusterScoped(kind):
		namespace = "" // cluster-scoped: ignore the manifest's namespace
	case namespace == "":
		namespace = metav1.NamespaceDefault
	}
	o.SetNamespace(namespace)
	k := Key{kind, namespace, o.GetName()}
	if k.Name == "" {
		return k, fmt.Errorf("%s: metadata.name is missing", kind)
	}
	if problems := validation.IsDNS1123Subdomain(k.Name); len(problems) > 0 {
		return k, fmt.Errorf("%s: metadata.name %q: %s", kind, k.Name, problems[0])
	}
	if clusterScoped(kind) {
		return k, nil
	}
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return k, fmt.Errorf("%s: metadata.namespace %q: %s", k, namespace, problems[0])
	}
	return k, nil
}

func checkClass(c *nodev1.RuntimeClass) error {
	if problems := validation.IsDNS1123Label(c.Handler); len(problems) > 0 {
		return fmt.Errorf("handler %q: %s", c.Handler, problems[0])
	}
	return nil
}

func checkConfigMap(m *v1.ConfigMap) error {
	size := 0
	for name, value := range m.Data {
		if err := checkKey("data", name); err != nil {
			return err
		}
		size += len(value)
	}
	for name, value := range m.BinaryData {
		if err := checkKey("binaryData", name); err != nil {
			return err
		}
		if _, twice := m.Data[name]; twice {
			return fmt.Errorf("key %q is in both data and binaryData", name)
		}
		size += len(value)
	}
	return checkSize(size)
}

// checkSecret also moves stringData into data, where it replaces existing keys,
// as in an API server.
func checkSecret(s *v1.Secret) error {
	if s.Data == nil && len(s.StringData) > 0 {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for name, value := range s.StringData {
		s.Data[name] = []byte(value)
	}
	s.StringData = nil
	size := 0
	for name, value := range s.Data {
		if err := checkKey("data", name); err != nil {
			return err
		}
		size += len(value)
	}
	return checkSize(size)
}

func checkVolume(pv *v1.PersistentVolume) error {
	host := ptr.Deref(pv.Spec.HostPath, v1.HostPathVolumeSource{})
	local := ptr.Deref(pv.Spec.Local, v1.LocalVolumeSource{})
	for _, path := range []string{host.Path, local.Path} {
		if strings.Contains("/"+path+"/", "/../") || strings.ContainsRune(path, 0) {
			return fmt.Errorf("the path %q must not contain '..'", path)
		}
	}
	return nil
}

func checkKey(field, name string) error {
	if problems := validation.IsConfigMapKey(name); len(problems) > 0 {
		return fmt.Errorf("%s[%q]: %s", field, name, problems[0])
	}
	return nil
}

func checkSize(size int) error {
	if size > maxData {
		return fmt.Errorf("data has %d bytes, more than the %d (1 MiB) allowed", size, maxData)
	}
	return nil
}

// Bounds of a written quantity. The parser of
// k8s.io/apimachinery/pkg/api/resource raises ten to the exponent and can run
// for hours.
const (
	maxDigits         = 64
	maxExponentDigits = 2
)

var errNumber = errors.New("contains a number that is too long or has too large an exponent")

// checkNumbers rejects an object with quantities that are expensive to parse.
func checkNumbers(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		written := ""
		switch token := token.(type) {
		case json.Number:
			written = token.String()
		case string:
			written = token
		}
		if dangerous(written) {
			return errNumber
		}
	}
}

// dangerous reports whether a text is a number, with or without a unit, that is
// expensive to parse.
func dangerous(text string) bool {
	number := strings.TrimRight(text, "KMGTPEkmunpi")
	if number == "" || strings.Trim(number, "0123456789.eE+-") != "" {
		return false
	}
	if len(number) > maxDigits {
		return true
	}
	_, exponent, _ := strings.Cut(strings.ToLower(number), "e")
	return len(strings.TrimLeft(exponent, "+-0")) > maxExponentDigits
}
