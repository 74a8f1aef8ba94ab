package nft

import "golang.org/x/sys/unix"

// anonymousMap has the kernel name a map, and delete it with its rule.
const anonymousMap = "__map%d"

// Integers in the nft program's count of types, and the key's order of bytes in
// the user data of a map.
const (
	typeInteger = 4
	hostOrder   = 1
)

// keyOrder is the user data of a set whose keys are in the host's order of bytes.
func keyOrder() []byte { return append([]byte{0, 4}, native(hostOrder)...) }

// anonymous takes the number in the first register to what a map of this
// transaction has for it.
func (r *rule) anonymous(id, into uint32) *rule {
	r.begin("lookup")
	r.text(unix.NFTA_LOOKUP_SET, anonymousMap)
	r.number(unix.NFTA_LOOKUP_SET_ID, id)
	r.number(unix.NFTA_LOOKUP_SREG, register(0))
	r.number(unix.NFTA_LOOKUP_DREG, into)
	return r.end()
}

// newNumbered makes the map of one rule from numbers to endpoints, or to their
// chains.
func (t *Table) newNumbered(p pick) (id uint32) {
	dataType, dataLen := p.nftType()<<typeBits|typeService, uint32(p.length)+4
	if p.sticky != nil {
		dataType, dataLen = unix.NFT_DATA_VERDICT, 0
	}
	t.sets++
	t.command(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE)
	t.batch.String(unix.NFTA_SET_TABLE, tableName)
	t.batch.String(unix.NFTA_SET_NAME, anonymousMap)
	t.batch.Net32(unix.NFTA_SET_ID, t.sets)
	t.batch.Net32(unix.NFTA_SET_FLAGS, setMap|unix.NFT_SET_ANONYMOUS|unix.NFT_SET_CONSTANT)
	t.batch.Net32(unix.NFTA_SET_KEY_TYPE, typeInteger)
	t.batch.Net32(unix.NFTA_SET_KEY_LEN, 4)
	t.batch.Net32(unix.NFTA_SET_DATA_TYPE, dataType)
	t.batch.Net32(unix.NFTA_SET_DATA_LEN, dataLen)
	desc := t.batch.Nest(unix.NFTA_SET_DESC)
	t.batch.Net32(unix.NFTA_SET_DESC_SIZE, uint32(len(p.endpoints)))
	t.batch.End(desc)
	t.batch.Bytes(setUserdata, keyOrder())
	t.putNumbered(p)
	return t.sets
}

func (t *Table) putNumbered(p pick) {
	list := elementList{table: t, kind: unix.NFT_MSG_NEWSETELEM, flags: unix.NLM_F_CREATE, set: anonymousMap, id: t.sets}
	for i, e := range p.endpoints {
		list.next()
		element := t.batch.Nest(unix.NFTA_LIST_ELEM)
		putData(&t.batch, unix.NFTA_SET_ELEM_KEY, native(uint32(i)))
		if p.sticky != nil {
			t.putVerdict(target{verdictGoto, p.sticky[i]})
		} else {
			putData(&t.batch, unix.NFTA_SET_ELEM_DATA, endpointValue(e))
		}
		t.batch.End(element)
	}
	list.end()
}

// putVerdict writes the value of a verdict map's element.
func (t *Table) putVerdict(to target) {
	var data encoded
	data.verdictData(to.code, to.chain)
	t.batch.Bytes(unix.NFTA_SET_ELEM_DATA|unix.NLA_F_NESTED, data.code)
}
