// Package provision sets a board up from a file that somebody puts on its boot partition
// before the first boot: host name, time zone, network, SSH keys, and the cluster to join.
//
// The file is applied once. Its secrets are then overwritten, since anyone who has the card
// can read the boot partition. A power cut at any moment is followed by the same again at
// the next boot, until it is complete.
//
// The package knows nothing of Kubernetes beyond the values that it stores.
package provision

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v2"
)

// Config is the content of a provisioning file. Fields that are not set change nothing.
type Config struct {
	// Hostname is the name of the board and of its node.
	Hostname string `yaml:"hostname,omitempty"`
	// TimeZone is a name of the time zone database, such as Europe/Berlin.
	TimeZone string   `yaml:"timeZone,omitempty"`
	Network  *Network `yaml:"network,omitempty"`
	SSH      *SSH     `yaml:"ssh,omitempty"`
	// Join has the board join a cluster. Only one of Join and Kubeconfig may be set.
	Join *Join `yaml:"join,omitempty"`
	// Kubeconfig is the content of the node's kubeconfig, with the certificate authority in
	// it, which the clients of the kubelet API have too. It is a secret.
	Kubeconfig string `yaml:"kubeconfig,omitempty"`
}

// Network configures one interface.
type Network struct {
	// Interface is its name. The default is wlan0 with WiFi, else eth0.
	Interface string `yaml:"interface,omitempty"`
	// Addresses are in CIDR notation. Without any, DHCP configures the interface.
	Addresses   []string `yaml:"addresses,omitempty"`
	Gateway     string   `yaml:"gateway,omitempty"`
	Nameservers []string `yaml:"nameservers,omitempty"`
	WiFi        *WiFi    `yaml:"wifi,omitempty"`
}

// WiFi is a network with a pre-shared key (WPA2-Personal).
type WiFi struct {
	// SSID has 1 to 32 bytes.
	SSID string `yaml:"ssid"`
	// Passphrase has 8 to 63 printable ASCII characters. It is a secret.
	Passphrase string `yaml:"passphrase"`
	// Country is the ISO 3166 code of the country whose radio rules apply.
	Country string `yaml:"country,omitempty"`
}

// SSH has the keys of the user root. Without keys no SSH server starts.
type SSH struct {
	AuthorizedKeys []string `yaml:"authorizedKeys"`
}

// Join has the arguments of tinylet join.
type Join struct {
	Server string `json:"server" yaml:"server"`
	// Token is a bootstrap token. It is a secret.
	Token        string   `json:"token" yaml:"token"`
	CACertHashes []string `json:"caCertHashes" yaml:"caCertHashes"`
}

// Limits of a file.
const (
	maxFile  = 64 << 10 // bytes
	maxList  = 32       // of addresses, name servers, keys or hashes
	maxField = 16 << 10 // bytes of a value, but of the kubeconfig
)

// Parse parses a provisioning file in YAML or JSON. It accepts a byte order mark and any
// ends of lines. It returns the errors of all fields.
func Parse(text []byte) (*Config, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("provisioning file has more than %d bytes", maxFile)
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("provisioning file is empty")
	}
	c := new(Config)
	if err := yaml.UnmarshalStrict(text, c); err != nil {
		return nil, fmt.Errorf("parse provisioning file: %w", withoutTypes(err))
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// withoutTypes replaces the Go types in an error about unknown fields.
func withoutTypes(err error) error {
	var typeError *yaml.TypeError
	if !errors.As(err, &typeError) {
		return err
	}
	texts := slices.Clone(typeError.Errors)
	for i, text := range texts {
		if field, _, unknown := strings.Cut(text, " not found in type "); unknown {
			texts[i] = strings.Replace(field, "field ", "unknown field ", 1)
		}
	}
	return errors.New(strings.Join(texts, "; "))
}

var (
	label     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`) })
	zone      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,2}$`) })
	netDevice = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9]{0,14}$`) })
	country   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Z]{2}$`) })
	token     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`) })
	hash      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^sha256:[0-9a-f]{64}$`) })
)

// validate returns the errors of all fields. No error has a secret.
func (c *Config) validate() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: "+format, append([]any{field}, args...)...))
	}
	if c.Hostname != "" {
		labels := strings.Split(c.Hostname, ".")
		if len(c.Hostname) > 63 || slices.ContainsFunc(labels, func(l string) bool { return !label().MatchString(l) }) {
			wrong("hostname", "%.80q is no host name: use at most 63 lower case letters, digits, - and .", c.Hostname)
		}
	}
	if c.TimeZone != "" && !zone().MatchString(c.TimeZone) {
		wrong("timeZone", "%.80q is no time zone, such as Europe/Berlin", c.TimeZone)
	}
	if c.Network != nil {
		c.Network.validate(wrong)
	}
	if c.SSH != nil {
		c.SSH.validate(wrong)
	}
	if c.Join != nil {
		c.Join.validate(wrong)
	}
	switch {
	case c.Join != nil && c.Kubeconfig != "":
		wrong("kubeconfig", "set either join or kubeconfig")
	case c.Kubeconfig != "":
		if _, err := c.authority(); err != nil {
			wrong("kubeconfig", "%v", err)
		}
	}
	return errors.Join(errs...)
}

// authority returns the certificate authority in the kubeconfig.
func (c *Config) authority() ([]byte, error) {
	var k struct {
		Clusters []struct {
			Cluster struct {
				Server    string `yaml:"server"`
				Authority string `yaml:"certificate-authority-data"`
			} `yaml:"cluster"`
		} `yaml:"clusters"`
	}
	if err := yaml.Unmarshal([]byte(c.Kubeconfig), &k); err != nil {
		return nil, errors.New("it is no YAML") // the error may have a secret
	}
	if len(k.Clusters) != 1 || k.Clusters[0].Cluster.Server == "" {
		return nil, errors.New("it must have one cluster with a server")
	}
	data, err := base64.StdEncoding.DecodeString(k.Clusters[0].Cluster.Authority)
	if block, _ := pem.Decode(data); err != nil || block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("certificate-authority-data of its cluster must be a certificate, in PEM and base64")
	}
	return data, nil
}

type reporter func(field, format string, args ...any)

func (n *Network) validate(wrong reporter) {
	if n.Interface != "" && !netDevice().MatchString(n.Interface) {
		wrong("network.interface", "%.80q is no name of an interface, such as eth0", n.Interface)
	}
	if max(len(n.Addresses), len(n.Nameservers)) > maxList {
		wrong("network", "there are more than %d addresses or name servers", maxList)
		return
	}
	var prefixes []netip.Prefix
	for i, text := range n.Addresses {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().IsUnspecified() || p.Addr().IsMulticast() {
			wrong(fmt.Sprintf("network.addresses[%d]", i), "%.80q is no address with a prefix length, such as 192.168.1.20/24", text)
			continue
		}
		prefixes = append(prefixes, p)
	}
	if n.Gateway != "" {
		gateway, err := netip.ParseAddr(n.Gateway)
		switch {
		case err != nil:
			wrong("network.gateway", "%.80q is no address", n.Gateway)
		case len(n.Addresses) == 0:
			wrong("network.gateway", "it is set without addresses; with DHCP the server has it")
		case !gateway.IsLinkLocalUnicast() && !slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(gateway) }):
			wrong("network.gateway", "%s is in none of the networks of addresses", gateway)
		}
	}
	for i, text := range n.Nameservers {
		if _, err := netip.ParseAddr(text); err != nil {
			wrong(fmt.Sprintf("network.nameservers[%d]", i), "%.80q is no address", text)
		}
	}
	if w := n.WiFi; w != nil {
		if len(w.SSID) < 1 || len(w.SSID) > 32 {
			wrong("network.wifi.ssid", "it has %d bytes, and must have 1 to 32", len(w.SSID))
		}
		if len(w.Passphrase) < 8 || len(w.Passphrase) > 63 || strings.ContainsFunc(w.Passphrase, func(r rune) bool { return r < ' ' || r > '~' }) {
			wrong("network.wifi.passphrase", "it must have 8 to 63 printable ASCII characters")
		}
		if w.Country != "" && !country().MatchString(w.Country) {
			wrong("network.wifi.country", "%.80q is no code of a country, such as DE", w.Country)
		}
	}
}

// keyTypes are the types of keys that SSH servers accept today.
var keyTypes = []string{"ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa", "sk-ssh-ed25519@openssh.com"}

func (s *SSH) validate(wrong reporter) {
	if len(s.AuthorizedKeys) > maxList {
		wrong("ssh.authorizedKeys", "there are more than %d", maxList)
		return
	}
	for i, line := range s.AuthorizedKeys {
		field := fmt.Sprintf("ssh.authorizedKeys[%d]", i)
		words := strings.Fields(line)
		switch {
		case len(line) > maxField || strings.ContainsAny(strings.TrimSpace(line), "\r\n"):
			wrong(field, "it is more than one line, or too long")
		case len(words) < 2 || !slices.Contains(keyTypes, words[0]):
			wrong(field, "it is no public key: want a type (%s) and the key", strings.Join(keyTypes, ", "))
		default:
			// The key begins with its type, with a length in front (RFC 4253, 6.6).
			key, err := base64.StdEncoding.DecodeString(words[1])
			if err != nil || len(key) < 4+len(words[0]) || string(key[4:4+len(words[0])]) != words[0] {
				wrong(field, "its base64 is no key of type %s", words[0])
			}
		}
	}
}

func (j *Join) validate(wrong reporter) {
	u, err := url.Parse(j.Server)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || len(j.Server) > 512 {
		wrong("join.server", "%.80q is no URL of an API server, such as https://10.0.0.1:6443", j.Server)
	}
	if !token().MatchString(j.Token) {
		wrong("join.token", "it is no bootstrap token, such as those that `kubeadm token create` prints")
	}
	if len(j.CACertHashes) == 0 || len(j.CACertHashes) > maxList {
		wrong("join.caCertHashes", "there must be 1 to %d", maxList)
		return
	}
	for i, h := range j.CACertHashes {
		if !hash().MatchString(h) {
			wrong(fmt.Sprintf("join.caCertHashes[%d]", i), "%.80q is not sha256: and 64 hexadecimal digits", h)
		}
	}
}

// hexText returns the hexadecimal digits of text, which wpa_supplicant accepts for an SSID
// without quotes.
func hexText(text string) string { return hex.EncodeToString([]byte(text)) }
