-- leave 1: remove a member that holds nothing; Redis would forget the entries of a member that holds some.
-- KEYS: the stream. ARGV: group, member.
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
  redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
return redis.status_reply('OK')
