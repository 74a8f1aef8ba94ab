package nft

import (
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// elementsLen is the length in bytes from which on the elements of a message are sent, so
// that they fit into an attribute of 64 KiB.
const elementsLen = 48 << 10

// setFlags returns the flags of a set that this package uses.
func setFlags(s nftables.Set) (flags uint32) {
	for _, f := range []struct {
		set  bool
		flag uint32
	}{
		{s.Anonymous, unix.NFT_SET_ANONYMOUS},
		{s.Constant, unix.NFT_SET_CONSTANT},
		{s.IsMap, unix.NFT_SET_MAP},
		{s.HasTimeout, unix.NFT_SET_TIMEOUT},
		{s.Dynamic, unix.NFT_SET_EVAL},
	} {
		if f.set {
			flags |= f.flag
		}
	}
	return flags
}

// dataType returns the type of a map's values, which differs from that of the nft
// program for verdicts.
func dataType(s nftables.Set) uint32 {
	if s.DataType == nftables.TypeVerdict {
		return unix.NFT_DATA_VERDICT
	}
	return s.DataType.GetNFTMagic()
}

// encodeSet returns the attributes that describe a set.
func encodeSet(s nftables.Set) []netlink.Attribute {
	all := []netlink.Attribute{
		text(unix.NFTA_SET_TABLE, tableName),
		text(unix.NFTA_SET_NAME, s.Name),
		number(unix.NFTA_SET_ID, s.ID),
		number(unix.NFTA_SET_FLAGS, setFlags(s)),
		number(unix.NFTA_SET_KEY_TYPE, s.KeyType.GetNFTMagic()),
		number(unix.NFTA_SET_KEY_LEN, s.KeyType.Bytes),
	}
	if s.IsMap {
		all = append(all, number(unix.NFTA_SET_DATA_TYPE, dataType(s)), number(unix.NFTA_SET_DATA_LEN, s.DataType.Bytes))
	}
	if s.Size != 0 {
		all = append(all, nested(unix.NFTA_SET_DESC, number(unix.NFTA_SET_DESC_SIZE, s.Size)))
	}
	var data []byte
	if s.Comment != "" {
		data = commentData(commentOfSet, s.Comment)
	}
	if s.KeyByteOrder == binaryutil.NativeEndian { // or the nft program lists names and numbers wrongly
		data = userdata.AppendUint32(data, userdata.NFTNL_UDATA_SET_KEYBYTEORDER, 1)
	}
	return append(all, bytesOf(unix.NFTA_SET_USERDATA, data))
}

// newSet adds a set or map, and returns its ID in the transaction.
func (b *batch) newSet(s nftables.Set) (id uint32) {
	b.sets++
	s.ID = b.sets
	b.add(unix.NFT_MSG_NEWSET, netlink.Create, encodeSet(s)...)
	return s.ID
}

func (b *batch) newSets(all []nftables.Set) {
	for _, s := range all {
		b.newSet(s)
	}
}

func (b *batch) deleteSet(name string) {
	b.add(unix.NFT_MSG_DELSET, 0, text(unix.NFTA_SET_TABLE, tableName), text(unix.NFTA_SET_NAME, name))
}

// sets lists the sets and maps of the table.
func (t *Table) sets() ([]attributes, error) {
	all, err := t.list(unix.NFT_MSG_GETSET, netlink.Dump, text(unix.NFTA_SET_TABLE, tableName))
	return all, ignoreAbsent(err)
}

// isSet reports whether a listed set is of a kind.
func isSet(want nftables.Set, listed attributes) bool {
	return listed.number(unix.NFTA_SET_FLAGS) == setFlags(want) &&
		listed.number(unix.NFTA_SET_KEY_TYPE) == want.KeyType.GetNFTMagic() &&
		listed.number(unix.NFTA_SET_KEY_LEN) == want.KeyType.Bytes &&
		listed.number(unix.NFTA_SET_DATA_TYPE) == dataType(want) &&
		listed.number(unix.NFTA_SET_DATA_LEN) == want.DataType.Bytes &&
		listed.value(unix.NFTA_SET_DESC).number(unix.NFTA_SET_DESC_SIZE) == want.Size
}

// addElements adds elements that a set does not have: for one that it has the
// kernel refuses the transaction (EEXIST).
func (b *batch) addElements(set string, all []nftables.SetElement) {
	b.elements(unix.NFT_MSG_NEWSETELEM, netlink.Create|netlink.Excl, set, 0, all)
}

// putElements adds elements; those that the set has are no error. id is the ID of a set of
// the same transaction, or 0.
func (b *batch) putElements(set string, id uint32, all []nftables.SetElement) {
	b.elements(unix.NFT_MSG_NEWSETELEM, netlink.Create, set, id, all)
}

// deleteElements deletes elements by their keys. The kernel refuses the
// transaction if the set does not have one of them (ENOENT).
func (b *batch) deleteElements(set string, all []nftables.SetElement) {
	b.elements(unix.NFT_MSG_DELSETELEM, 0, set, 0, all)
}

// elements adds messages with the elements, split by elementsLen.
func (b *batch) elements(kind uint16, flags netlink.HeaderFlags, set string, id uint32, all []nftables.SetElement) {
	encoded := make([]netlink.Attribute, 0, len(all))
	size, start := 0, 0
	for i, e := range all {
		if kind == unix.NFT_MSG_DELSETELEM {
			e = nftables.SetElement{Key: e.Key}
		}
		encoded = append(encoded, encodeElement(e))
		if size += len(encoded[i].Data); size > elementsLen || i == len(all)-1 {
			b.add(kind, flags, elementList(set, id, encoded[start:]...)...)
			size, start = 0, i+1
		}
	}
}

func elementList(set string, id uint32, encoded ...netlink.Attribute) []netlink.Attribute {
	all := []netlink.Attribute{text(unix.NFTA_SET_ELEM_LIST_TABLE, tableName), text(unix.NFTA_SET_ELEM_LIST_SET, set)}
	if id != 0 {
		all = append(all, number(unix.NFTA_SET_ELEM_LIST_SET_ID, id))
	}
	return append(all, nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, encoded...))
}

// encodeElement encodes a key, with the value and the comment that it may have.
func encodeElement(e nftables.SetElement) netlink.Attribute {
	all := []netlink.Attribute{nested(unix.NFTA_SET_ELEM_KEY, bytesOf(unix.NFTA_DATA_VALUE, e.Key))}
	switch {
	case e.VerdictData != nil:
		all = append(all, nested(unix.NFTA_SET_ELEM_DATA, encodeVerdict(*e.VerdictData)))
	case e.Val != nil:
		all = append(all, nested(unix.NFTA_SET_ELEM_DATA, bytesOf(unix.NFTA_DATA_VALUE, e.Val)))
	}
	if e.Comment != "" {
		all = append(all, bytesOf(unix.NFTA_SET_ELEM_USERDATA, commentData(commentOfElement, e.Comment)))
	}
	return nested(unix.NFTA_LIST_ELEM, all...)
}

func encodeVerdict(v expr.Verdict) netlink.Attribute {
	all := []netlink.Attribute{number(unix.NFTA_VERDICT_CODE, uint32(v.Kind))}
	if v.Chain != "" {
		all = append(all, text(unix.NFTA_VERDICT_CHAIN, v.Chain))
	}
	return nested(unix.NFTA_DATA_VERDICT, all...)
}

// elementsOf lists the elements of a set or map, with keys, values and comments,
// in no order.
func (t *Table) elementsOf(set string) ([]nftables.SetElement, error) {
	messages, err := t.list(unix.NFT_MSG_GETSETELEM, netlink.Dump,
		text(unix.NFTA_SET_ELEM_LIST_TABLE, tableName), text(unix.NFTA_SET_ELEM_LIST_SET, set))
	return decodeElements(messages...), err
}

// element returns the element of a key, none if the set does not have it. Its cost
// does not depend on the number of elements.
func (t *Table) element(set string, key []byte) ([]nftables.SetElement, error) {
	messages, err := t.list(unix.NFT_MSG_GETSETELEM, 0, elementList(set, 0, encodeElement(nftables.SetElement{Key: key}))...)
	return decodeElements(messages...), ignoreAbsent(err)
}

// decodeElements decodes the elements of messages.
func decodeElements(messages ...attributes) (all []nftables.SetElement) {
	for _, m := range messages {
		for _, e := range m.value(unix.NFTA_SET_ELEM_LIST_ELEMENTS).each() {
			all = append(all, nftables.SetElement{
				Key:     e.value(unix.NFTA_SET_ELEM_KEY).value(unix.NFTA_DATA_VALUE),
				Val:     e.value(unix.NFTA_SET_ELEM_DATA).value(unix.NFTA_DATA_VALUE),
				Comment: commentOf(e.value(unix.NFTA_SET_ELEM_USERDATA)),
			})
		}
	}
	return all
}
